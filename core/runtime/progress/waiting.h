#pragma once

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace hvd {

// How a driver waits for work: it spins for a bounded time, then sleeps on the descriptors of a
// PollSet.

// How long to look for work before sleeping. It is worth its CPU only if the peers really run
// meanwhile: so the time grows when spinning met the work, shrinks when it did not, and now and
// then the longest time is tried again. Ranks that share a core let each other run between two
// looks. A peer that computes then keeps the core for milliseconds, so in the end they do not look
// at all.
class SpinLimit {
 public:
  explicit SpinLimit(int64_t most_us, bool yields = false)
      : most_us_(most_us), least_us_(yields ? 0 : kLeastUs), yields_(yields), now_us_(most_us) {}

  bool yields() const { return yields_; }

  // How long to spin in the wait that begins.
  int64_t Begin() { return ++waits_ % kProbe == 0 ? most_us_ : now_us_; }
  // Work came while spinning, after so long. Who got the core back late would have been woken
  // sooner.
  void Found(int64_t us) {
    if (yields_ && us > most_us_) return Missed();
    now_us_ = std::min(most_us_, std::max(now_us_, 2 * us + kLeastUs));
  }
  // It did not.
  void Missed() { now_us_ = std::min(most_us_, std::max(least_us_, now_us_ / 2)); }

 private:
  static constexpr int64_t kLeastUs = 4;
  static constexpr uint32_t kProbe = 32;
  const int64_t most_us_;
  const int64_t least_us_;
  const bool yields_;
  int64_t now_us_;
  uint32_t waits_ = 0;
};

inline void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One wait for work: first spinning, then asleep.
class SpinWait {
 public:
  explicit SpinWait(SpinLimit* limit) : limit_(limit) {}

  // Nothing moved in the round that began now. True: look again. False: time to sleep.
  bool Spin(int64_t now) {
    if (since_ == 0) {
      since_ = now;
      spin_us_ = limit_->Begin();
    }
    if (now - since_ < spin_us_) {
      if (limit_->yields()) {
        sched_yield();
      } else {
        PauseCpu();
      }
      return true;
    }
    if (spin_us_ > 0) limit_->Missed();
    spin_us_ = 0;  // once asleep, every look that finds nothing leads back to sleep
    return false;
  }

  // Something did.
  void Found(int64_t now) {
    if (since_ != 0 && spin_us_ > 0) limit_->Found(now - since_);
    since_ = 0;
  }

 private:
  SpinLimit* limit_;
  int64_t since_ = 0;  // 0: work is at hand
  int64_t spin_us_ = 0;
};

// What a driver sleeps on: its waker and its transports, which are few. It needs no memory, for a
// rank that has none left must still sleep until it is told how the generation ended.
class PollSet {
 public:
  static constexpr size_t kMost = 4;

  // What is beyond kMost is left out.
  void Add(int fd) noexcept {
    if (count_ < kMost) fds_[count_++] = {fd, POLLIN, 0};
  }

  // Until one is readable or, on the clock of NowMicros, `until_us`; -1 = no limit. As poll.
  int Wait(int64_t until_us) noexcept {
    const int64_t left = until_us < 0 ? 0 : std::max<int64_t>(0, until_us - NowMicros());
    const timespec timeout{static_cast<time_t>(left / 1000000),
                           static_cast<long>(left % 1000000 * 1000)};
    return ppoll(fds_.data(), count_, until_us < 0 ? nullptr : &timeout, nullptr);
  }

 private:
  std::array<pollfd, kMost> fds_;
  size_t count_ = 0;
};

}  // namespace hvd
