#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "base/waker.h"
#include "runtime/operation/counters.h"
#include "runtime/progress/cycle.h"
#include "runtime/progress/role.h"
#include "runtime/progress/turns.h"
#include "runtime/progress/waiting.h"

namespace hvd {

enum class Waited { kDone, kTimeout, kInterrupted };

struct LoopOptions {
  int64_t waiter_spin_us = 0;
  bool waiter_yields = false;  // while it spins: it shares its core with other ranks
  int64_t background_spin_us = 0;
  int64_t collect_us = 300;         // how long the background thread lets submissions gather
  int64_t collect_bytes = 1 << 20;  // ... unless so much is queued
  int core = -1;                    // pin the background thread; -1 = do not
};

// Decides which thread drives the cycle. A thread that waits drives on its own stack; the
// background thread drives when work is in flight and nobody waits; with no work everybody sleeps
// and no CPU is used.
//
// Who holds the progress lock drives. A waiter keeps it while it sleeps; the background thread
// releases it before it sleeps, so that a waiter takes over at once. Role says who follows whom.
class Loop {
 public:
  Loop(LoopOptions options, Cycle* cycle, Queue* queue, Waker* waker, Counters* counters);
  ~Loop() { Stop(); }

  // After a submission that nobody is about to wait for, `urgent` or not. Never takes the progress
  // lock.
  void Notify(bool urgent = false);

  // Drives until `handle` is done, or the deadline; -1 = none. `now_us`: when the wait begins.
  // kInterrupted: a signal may have arrived.
  Waited Wait(const Handle& handle, int64_t now_us, int64_t deadline_us) noexcept;

  // One round even if nothing is in flight here: a rank whose own program submits nothing must
  // still see, or tell its parent, who waits for it.
  void Poke();

  // From any thread: look at the abort cell now.
  void WakeAll();

  // Joins the background thread. Waiters go on driving.
  void Stop();

  std::mutex& progress() { return progress_; }
  Role role() const { return role_.now(); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Background() noexcept;
  void Park();
  void DriveInBackground(Lock& lock);
  void SleepInBackground(Lock& lock);
  void WakeBackground();

  // Of one wait, however often it changes between driving and waiting for its turn.
  struct Limits {
    int64_t deadline_us;  // -1 = no limit
    int64_t check_us;     // when to look for signals
    int64_t Next() const { return Earlier(deadline_us, check_us); }
  };

  Waited Drive(Lock& lock, const Handle& handle, const Limits& limits);
  Waited SleepAsWaiter(Lock& lock, const Handle& handle, const Limits& limits);
  static Waited Due(const Limits& limits);
  Waited AwaitTurn(uint32_t turn, const Handle& handle, const Limits& limits);

  // `awake`: which driver's round it is. Without the lock afterwards: it called back, and another
  // thread drives.
  bool Round(Lock& lock, Role awake) noexcept;
  PollSet SleepOn() const noexcept;

  LoopOptions options_;
  Cycle* cycle_;
  Queue* queue_;
  Waker* waker_;
  Counters* counters_;

  std::mutex progress_;  // the progress lock: guards *cycle_ and the three lines below
  SpinLimit waiter_spin_;
  SpinLimit background_spin_;
  uint64_t ended_ = 0;  // of queue_, when those were last woken who wait for what has ended

  RoleCell role_;
  std::atomic<int> waiters_{0};
  Turns turns_;
  std::atomic<uint32_t> background_word_{0};  // futex: the parked background thread
  std::atomic<bool> background_parked_{false};
  std::atomic<bool> background_polling_{false};
  std::atomic<bool> poked_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace hvd
