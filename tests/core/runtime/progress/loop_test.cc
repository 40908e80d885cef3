// Who drives: the table of roles, and the roles that a loop really takes.

#include "runtime/progress/loop.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "backend/host/host_backend.h"
#include "base/clock.h"
#include "check.h"
#include "transport/inproc/fabric.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimitUs = 20000000;

std::vector<Role> AllRoles() {
  std::vector<Role> roles;
  for (int role = 0; role < kRoles; ++role) roles.push_back(static_cast<Role>(role));
  return roles;
}

// The roles that may come sooner or later after this one.
std::set<Role> Reachable(Role start) {
  std::set<Role> reached;
  std::vector<Role> open{start};
  while (!open.empty()) {
    const Role from = open.back();
    open.pop_back();
    for (const Role to : AllRoles()) {
      if (to != from && MayFollow(from, to) && reached.insert(to).second) open.push_back(to);
    }
  }
  return reached;
}

TEST(Role, EveryOneIsReachedAndEndsWithNobody) {
  for (const Role role : AllRoles()) {
    EXPECT_TRUE(role == Role::kNobody || Reachable(Role::kNobody).count(role) == 1);
    EXPECT_TRUE(Reachable(role).count(Role::kNobody) == 1);
  }
}

// A waiter sleeps with the lock; the background thread without it, so that a waiter takes over.
TEST(Role, OnlyTheSleepingBackgroundThreadIsOvertaken) {
  EXPECT_TRUE(MayFollow(Role::kBackgroundAsleep, Role::kWaiterAwake));
  EXPECT_TRUE(MayFollow(Role::kBackgroundCollecting, Role::kWaiterAwake));
  EXPECT_FALSE(MayFollow(Role::kWaiterAsleep, Role::kBackgroundAwake));
  EXPECT_FALSE(MayFollow(Role::kWaiterAwake, Role::kBackgroundAwake));
  EXPECT_FALSE(MayFollow(Role::kBackgroundAwake, Role::kWaiterAwake));
  for (const Role role : AllRoles()) {
    const bool sleeps_at_once = IsAsleep(role) && MayFollow(Role::kNobody, role);
    const bool leaves_asleep = IsAsleep(role) && MayFollow(role, Role::kNobody);
    EXPECT_FALSE(sleeps_at_once || leaves_asleep);
  }
}

TEST(Role, ASubmissionWakesWhoeverSleepsAndNobodyElse) {
  for (const bool enough : {false, true}) {
    EXPECT_TRUE(NudgeFor(Role::kNobody, enough) == Nudge::kStartBackground);
    EXPECT_TRUE(NudgeFor(Role::kWaiterAsleep, enough) == Nudge::kWakeDriver);
    EXPECT_TRUE(NudgeFor(Role::kBackgroundAsleep, enough) == Nudge::kWakeDriver);
    for (const Role role : {Role::kWaiterAwake, Role::kBackgroundAwake, Role::kCallbacks}) {
      EXPECT_TRUE(NudgeFor(role, enough) == Nudge::kNone);
    }
  }
  EXPECT_TRUE(NudgeFor(Role::kBackgroundCollecting, true) == Nudge::kWakeDriver);
  EXPECT_TRUE(NudgeFor(Role::kBackgroundCollecting, false) == Nudge::kNone);
}

// Rank 1 of two, over links; rank 0 never says anything, so that what is submitted stays in flight.
class Driven {
 public:
  Driven() {
    auto transport = fabric_.MakeTransport(0, GlobalRank(1), waker_, false);
    ProcessSetOptions options;
    options.members = Members::Everybody(2);
    options.rank = GlobalRank(1);
    ProcessSetWires wires;
    wires.topology = Topology::OneHost(2, false);
    wires.control =
        MakeTreeControl(nullptr, transport.get(), 0, options.members, wires.topology, Position(1));
    wires.backends.push_back(
        MakeTransportBackend(transport.get(), 0, options.members, Position(1)));
    cycle_.Own(std::move(transport));
    cycle_.Own(std::make_unique<ProcessSet>(options, std::move(wires), waker_, &queue_, &counters_,
                                            nullptr));
    loop_.emplace(LoopOptions{}, &cycle_, &queue_, &waker_, &counters_);
  }
  ~Driven() {
    loop_->Stop();
    abort_.Set(About(CauseKind::kFault, {}, "the test ends"));
    (void)cycle_.Round();
    cycle_.Close(0);
  }

  HandlePtr Submit(uint32_t set = 0, std::function<void(const Handle&)> on_complete = {}) {
    Entry entry;
    entry.process_set = set;
    entry.on_complete = std::move(on_complete);
    entry.request.kind = OpKind::kBarrier;
    auto handle = std::make_shared<Handle>(std::move(entry));
    EXPECT_TRUE(queue_.Push(handle).ok());
    return handle;
  }

  bool Becomes(Role role) {
    const int64_t deadline = NowMicros() + kLimitUs;
    while (loop_->role() != role && NowMicros() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return loop_->role() == role;
  }

  void RemoveTheSet() {
    cycle_.Post([this] { cycle_.Dismiss(0); });
  }

  Queue& queue() { return queue_; }
  Loop& loop() { return *loop_; }
  Waited WaitFor(const Handle& handle, int64_t timeout_us) {
    const int64_t now = NowMicros();
    return loop_->Wait(handle, now, now + timeout_us);
  }

 private:
  inproc::Fabric fabric_{2};
  Waker waker_;
  Queue queue_;
  AbortCell abort_;
  Counters counters_;
  Cycle cycle_{GlobalRank(1), {}, &queue_, &abort_};
  std::optional<Loop> loop_;
};

TEST(Loop, NobodyDrivesWithoutWork) {
  Driven driven;
  EXPECT_TRUE(driven.loop().role() == Role::kNobody);
  const HandlePtr refused = driven.Submit(7);  // there is no such set
  EXPECT_TRUE(driven.WaitFor(*refused, kLimitUs) == Waited::kDone);
  EXPECT_TRUE(driven.Becomes(Role::kNobody));
}

TEST(Loop, TheBackgroundThreadDrivesWhatNobodyWaitsForUntilAWaiterTakesOver) {
  Driven driven;
  const HandlePtr handle = driven.Submit();
  driven.loop().Notify();
  EXPECT_TRUE(driven.Becomes(Role::kBackgroundAsleep));
  std::thread waiter([&] {
    while (!handle->done.load()) (void)driven.WaitFor(*handle, kLimitUs);
  });
  EXPECT_TRUE(driven.Becomes(Role::kWaiterAsleep));
  handle->done.store(true);
  driven.loop().WakeAll();
  waiter.join();
  EXPECT_TRUE(driven.Becomes(Role::kBackgroundAsleep));  // it is still in flight
}

TEST(Loop, AWaiterWhoseTimeIsUpLeavesTheWorkToTheBackgroundThread) {
  Driven driven;
  const HandlePtr handle = driven.Submit();
  EXPECT_TRUE(driven.WaitFor(*handle, 1000) == Waited::kTimeout);
  EXPECT_TRUE(driven.Becomes(Role::kBackgroundAsleep));
}

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A waiter that loses its turn every few milliseconds, to others that keep it as long, looks for
// signals as often as one that drives in peace.
TEST(Loop, TheLookForSignalsDoesNotDependOnWhoseTurnItIs) {
  Driven driven;
  const HandlePtr late = driven.Submit();
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!over) (void)driven.WaitFor(*late, 10000);
    });
  }
  std::thread submitter([&] {
    while (!over) {
      const HandlePtr refused = driven.Submit(7, [](const Handle&) { SleepMs(5); });  // no such set
      driven.loop().Notify();
      while (!refused->done.load() && !over) SleepMs(1);
    }
  });
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(driven.WaitFor(*late, 1000000) == Waited::kInterrupted);
  }
  over = true;
  submitter.join();
  for (std::thread& other : others) other.join();
}

// By a thread that had asked for the set before it was removed.
TEST(Loop, WhatIsSubmittedWhileItsSetGoesEndsOnce) {
  Driven driven;
  std::atomic<int> ends{0};
  const HandlePtr late = driven.Submit(0, [&](const Handle&) { ++ends; });
  driven.RemoveTheSet();
  EXPECT_TRUE(driven.WaitFor(*late, kLimitUs) == Waited::kDone);
  EXPECT_EQ(late->status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(driven.Becomes(Role::kNobody));
  EXPECT_EQ(driven.queue().in_flight(), size_t{0});
  EXPECT_EQ(ends.load(), 1);
}

}  // namespace
}  // namespace hvd::test
