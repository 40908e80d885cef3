// A rank that calls shutdown() while a collective runs: the others learn soon that it has left, and
// nobody waits for good.

#include <chrono>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr size_t kElements = 2 << 20;  // enough to be under way for milliseconds
constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};

int Rounds(int usual, int full) { return std::getenv("HVD_TEST_FULL") != nullptr ? full : usual; }

void SleepUs(int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

struct Round {
  int size;
  int leaver;
  bool sink;         // nobody waits for the operation: the background thread drives it
  bool decided;      // the leaver goes when all have agreed on the operation, else at any moment
  int64_t pause_us;  // ... and so much later
  OpKind kind = OpKind::kAllreduce;
};

Round Draw(std::mt19937* random) {
  Round round;
  round.size = 2 + static_cast<int>((*random)() % 2);
  round.leaver = static_cast<int>((*random)() % static_cast<uint32_t>(round.size));
  round.sink = (*random)() % 3 == 0;
  round.decided = (*random)() % 4 != 0;
  round.pause_us = static_cast<int64_t>((*random)() % 6000);
  return round;
}

Entry BigEntry(OpKind kind, std::vector<float>* data) {
  Entry entry = AllreduceEntry("big", data);
  entry.request.kind = kind;
  entry.request.root = GlobalRank(0);
  const bool in_place = kind == OpKind::kAllreduce || kind == OpKind::kBroadcast;
  if (!in_place) entry.buffers[0].output = nullptr;
  return entry;
}

// Submits `data` and gives what became of it; kTimeout when nothing did.
Status Outcome(Engine& engine, const Round& round, std::vector<float>* data) {
  Entry entry = BigEntry(round.kind, data);
  HandlePtr handle;
  if (!round.sink) {
    HVD_RETURN_IF_ERROR(Submit(engine, std::move(entry), &handle));
    return engine.Wait(handle, kLimitUs, nullptr);
  }
  auto outcome = std::make_shared<std::promise<Status>>();
  entry.on_complete = [outcome](const Handle& done) { outcome->set_value(done.status); };
  HVD_RETURN_IF_ERROR(Submit(engine, std::move(entry), &handle));
  std::future<Status> future = outcome->get_future();
  if (future.wait_for(std::chrono::milliseconds(kPatienceMs)) == std::future_status::ready)
    return future.get();
  return {Code::kTimeout, "the operation is never complete"};
}

void Leave(Engine& engine, const Round& round, std::vector<float>* data) {
  HandlePtr handle;
  const Status submitted = Submit(engine, BigEntry(round.kind, data), &handle);
  if (!submitted.ok()) return;
  while (round.decided && !handle->decided.load() && !handle->done.load()) SleepUs(50);
  SleepUs(round.pause_us);
  engine.Shutdown();
}

// False when somebody was not told.
bool Play(Wires wires, const Round& round, const std::vector<int>& hosts = {}) {
  std::atomic<bool> told{true};
  Cluster cluster(round.size, wires, {}, {}, hosts);
  cluster.Run([&](Engine& engine, int rank) {
    std::vector<float> small(10, 1.0f);
    std::vector<float> data(kElements, 1.0f);
    ASSERT_OK(Allreduce(engine, "common", &small));
    if (rank == round.leaver) return Leave(engine, round, &data);
    const int64_t start = NowMicros();
    Status status = Outcome(engine, round, &data);
    // What was complete in time is no reason to fail; the next operation is.
    if (status.ok()) status = Allreduce(engine, "next", &small);
    told = told && status.code() != Code::kTimeout;
    EXPECT_EQ(status.code(), Code::kAborted);
    const std::string leaver = "rank " + std::to_string(round.leaver) + " (pid ";
    for (const std::string& part : {leaver, std::string("has left the job")}) {
      EXPECT_EQ(status.message().find(part) == std::string::npos ? status.message() : "", "");
    }
    EXPECT_TRUE(NowMicros() - start < kLimitUs / 2);
  });
  return told;
}

void PlayRounds(Wires wires, int rounds) {
  std::mt19937 random(3);
  for (int i = 0; i < rounds; ++i) {
    if (!EXPECT_TRUE(Play(wires, Draw(&random)))) return;
  }
}

TEST(Departure, DuringACollectiveOverTcp) { PlayRounds(Wires::kTcp, Rounds(20, 1000)); }

// Nothing breaks here: only the goodbye says that no more will come.
TEST(Departure, DuringACollectiveOverSharedMemory) { PlayRounds(Wires::kShm, Rounds(6, 200)); }

TEST(Departure, DuringACollectiveInProcess) {
  for (const Wires wires : {Wires::kInprocWindow, Wires::kInprocLinks})
    PlayRounds(wires, Rounds(3, 50));
}

TEST(Departure, DuringEveryCollectiveBetweenHosts) {
  std::mt19937 random(5);
  for (const std::vector<int>& hosts : HostShapes()) {
    for (const OpKind kind :
         {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kReducescatter}) {
      for (int i = 0; i < Rounds(1, 20); ++i) {
        Round round = Draw(&random);
        round.kind = kind;
        round.size = static_cast<int>(hosts.size());
        round.leaver = static_cast<int>(random() % hosts.size());
        if (!EXPECT_TRUE(Play(Wires::kHosts, round, hosts))) return;
      }
    }
  }
}

}  // namespace
}  // namespace hvd::test
