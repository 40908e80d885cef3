#include "runtime/progress/loop.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "base/waker.h"
#include "settings/log.h"

namespace hvd {

namespace {

// Of the calling thread.
void PinTo(int core) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0) return;
  char text[80];
  std::snprintf(text, sizeof text, "HOROVOD_THREAD_AFFINITY: core %d cannot be used", core);
  Log(LogLevel::kWarning, text);
}

// A waiter comes back this often although nothing happened: a signal that arrives just before it
// sleeps interrupts nothing, and Python's handlers must run.
constexpr int64_t kSignalCheckUs = 200000;
// A round may be a step's work for every set, and the machine may be busy.
constexpr uint32_t kRoundsPerCheck = 16;

}  // namespace

Loop::Loop(LoopOptions options, Cycle* cycle, Queue* queue, Waker* waker, Counters* counters)
    : options_(options),
      cycle_(cycle),
      queue_(queue),
      waker_(waker),
      counters_(counters),
      waiter_spin_(options.waiter_spin_us, options.waiter_yields),
      background_spin_(options.background_spin_us) {
  thread_ = std::thread([this] { Background(); });
}

void Loop::Notify(bool urgent) {
  const bool enough = urgent || queue_->queued_bytes() >= options_.collect_bytes;
  switch (NudgeFor(role_.now(), enough)) {
    case Nudge::kNone:
      return;
    case Nudge::kWakeDriver:
      return waker_->Ring();
    case Nudge::kStartBackground:
      return WakeBackground();
  }
}

void Loop::WakeBackground() {
  background_word_.fetch_add(1);
  if (background_parked_.load()) WakeFutex(background_word_);
  if (background_polling_.load()) waker_->Ring();
}

void Loop::Poke() {
  poked_.store(true);
  WakeBackground();
}

void Loop::WakeAll() {
  waker_->Ring();
  WakeBackground();
  turns_.WakeAll();
}

void Loop::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  WakeAll();
  thread_.join();
}

bool Loop::Round(Lock& lock, Role awake) noexcept {
  const bool moved = cycle_->Round();
  if (std::exchange(ended_, queue_->ended()) != ended_) turns_.WakeDone();
  HandleChain finished = cycle_->TakeFinished();
  if (finished.empty()) return moved;
  role_.Become(Role::kCallbacks);
  lock.unlock();
  turns_.Pass();
  while (const HandlePtr handle = finished.PopFront()) handle->entry.on_complete(*handle);
  // Another thread may drive by now, and may sleep with the lock for as long as its own operation
  // takes.
  if (lock.try_lock()) role_.Become(awake);
  return true;
}

PollSet Loop::SleepOn() const noexcept {
  PollSet fds;
  fds.Add(waker_->fd());
  cycle_->AddPollFds(&fds);
  return fds;
}

void Loop::Background() noexcept {
  PrepareToThrow();
  pthread_setname_np(pthread_self(), "hvd-engine");
  prctl(PR_SET_TIMERSLACK, 1000);  // batches close after tens of microseconds
  const FloatMode mode;            // not that of the thread which has made this one
  if (options_.core >= 0) PinTo(options_.core);
  while (!stopping_.load()) {
    Park();
    Lock lock(progress_, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    DriveInBackground(lock);
  }
}

void Loop::Park() {
  for (;;) {
    const uint32_t word = background_word_.load();
    background_parked_.store(true);
    const bool wanted = cycle_->HasWork() || poked_.load();
    if (stopping_.load() || (wanted && waiters_.load() == 0)) break;
    WaitOnFutex(background_word_, word, -1);
    if (!poked_.load()) CountShared(counters_->wakeups);
  }
  background_parked_.store(false);
}

void Loop::DriveInBackground(Lock& lock) {
  SpinWait spin(&background_spin_);
  cycle_->Arm(false);
  role_.Become(Role::kBackgroundAwake);
  poked_.store(false);
  while (!stopping_.load(std::memory_order_relaxed) && waiters_.load() == 0) {
    if (Round(lock, Role::kBackgroundAwake)) {
      if (!lock.owns_lock()) return;  // a waiter drives; the role is its own
      spin.Found(cycle_->now_us());
      continue;
    }
    if (!cycle_->HasWork()) break;
    if (spin.Spin(cycle_->now_us())) continue;
    SleepInBackground(lock);
    if (!lock.owns_lock()) return;
  }
  role_.Become(Role::kNobody);
  lock.unlock();
  turns_.Pass();
}

void Loop::SleepInBackground(Lock& lock) {
  const int64_t now = NowMicros();
  const int64_t collected = cycle_->drained_us() + options_.collect_us;
  cycle_->Arm(true);
  role_.Become(collected > now ? Role::kBackgroundCollecting : Role::kBackgroundAsleep);
  if (!Round(lock, Role::kBackgroundAwake)) {
    const int64_t until = Earlier(cycle_->Deadline(), collected > now ? collected : -1);
    PollSet fds = SleepOn();  // the cycle's, so before the lock goes
    background_polling_.store(true);
    lock.unlock();
    turns_.Pass();
    if (waiters_.load() == 0 && !stopping_.load()) fds.Wait(until);
    background_polling_.store(false);
    CountShared(counters_->wakeups);
    if (!lock.try_lock()) return;
    waker_->Drain();
  }
  if (!lock.owns_lock()) return;
  cycle_->Arm(false);
  role_.Become(Role::kBackgroundAwake);
}

Waited Loop::Wait(const Handle& handle, int64_t now_us, int64_t deadline_us) noexcept {
  const Limits limits{deadline_us, now_us + kSignalCheckUs};
  Waited result = Waited::kDone;
  waiters_.fetch_add(1);
  while (!handle.done.load(std::memory_order_acquire)) {
    const uint32_t turn = turns_.number();
    Lock lock(progress_, std::try_to_lock);
    result = lock.owns_lock() ? Drive(lock, handle, limits) : AwaitTurn(turn, handle, limits);
    if (result != Waited::kDone) break;
  }
  const bool last = waiters_.fetch_sub(1) == 1;
  // Work in flight goes on under another waiter or in the background.
  if (!last) {
    turns_.Pass();
  } else if (cycle_->HasWork()) {
    WakeBackground();
  }
  CountShared(counters_->waited_us, NowMicros() - now_us);
  return result;
}

Waited Loop::Drive(Lock& lock, const Handle& handle, const Limits& limits) {
  const FloatMode mode;
  Waited result = Waited::kDone;
  SpinWait spin(&waiter_spin_);
  cycle_->Arm(false);
  role_.Become(Role::kWaiterAwake);
  for (uint32_t round = 1; result == Waited::kDone && !handle.done.load(std::memory_order_acquire);
       ++round) {
    const bool moved = Round(lock, Role::kWaiterAwake);
    if (lock.owns_lock() && moved) {
      spin.Found(cycle_->now_us());
    } else if (lock.owns_lock() && !spin.Spin(cycle_->now_us())) {
      result = SleepAsWaiter(lock, handle, limits);
    }
    if (!lock.owns_lock()) return result;  // another waiter drives; the role is its own
    // The traffic of others may leave no pause.
    if (result == Waited::kDone && round % kRoundsPerCheck == 0) result = Due(limits);
  }
  role_.Become(Role::kNobody);
  return result;
}

// Here kDone means: awake, look again.
Waited Loop::SleepAsWaiter(Lock& lock, const Handle& handle, const Limits& limits) {
  Waited result = Waited::kDone;
  cycle_->Arm(true);
  role_.Become(Role::kWaiterAsleep);
  if (!Round(lock, Role::kWaiterAwake) && !handle.done.load(std::memory_order_acquire)) {
    const int ready = SleepOn().Wait(Earlier(cycle_->Deadline(), limits.Next()));
    CountShared(counters_->wakeups);
    waker_->Drain();
    result = Due(limits);
    if (ready < 0 && result == Waited::kDone) result = Waited::kInterrupted;
  }
  if (!lock.owns_lock()) return result;
  cycle_->Arm(false);
  role_.Become(Role::kWaiterAwake);
  return result;
}

// Whether a waiter must stop though its operation is not complete; kDone: it need not.
Waited Loop::Due(const Limits& limits) {
  const int64_t now = NowMicros();
  if (limits.deadline_us >= 0 && now >= limits.deadline_us) return Waited::kTimeout;
  return now >= limits.check_us ? Waited::kInterrupted : Waited::kDone;
}

// Another thread drives. Here too kDone means: look again.
Waited Loop::AwaitTurn(uint32_t turn, const Handle& handle, const Limits& limits) {
  // A driver that sleeps knows nothing of an operation whose submitter meant to drive it.
  if (!queue_->empty()) Notify();
  // The driver may sit asleep in the background holding nothing; a running one sees waiters_ and
  // leaves.
  const FutexWait woken =
      turns_.Await(turn, handle, std::max<int64_t>(0, limits.Next() - NowMicros()));
  const Waited due = Due(limits);
  return due == Waited::kDone && woken != FutexWait::kWoken ? Waited::kInterrupted : due;
}

}  // namespace hvd
