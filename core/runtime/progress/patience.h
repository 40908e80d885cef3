#pragma once

#include <algorithm>
#include <cstdint>

namespace hvd {

// Cores that this process may use: affinity and cgroup quota, not the core count.
int UsableCores();
// Cores that any of the given affinity masks allows, limited by the quota. A mask is kMaskWords words.
constexpr int kMaskWords = 16;
void ReadAffinity(uint64_t mask[kMaskWords]);
int QuotaCores();

// How long to look for work before sleeping. Spinning is worth its CPU only while every rank of the host has
// a core, and only if the peers really run meanwhile: so the time grows when spinning met the work, shrinks
// when it did not, and now and then the longest time is tried again.
class Patience {
 public:
  explicit Patience(int64_t most_us) : most_us_(most_us), now_us_(most_us) {}

  // How long to spin in the wait that begins.
  int64_t Begin() { return ++waits_ % kProbe == 0 ? most_us_ : now_us_; }
  // Work came while spinning, after so long.
  void Found(int64_t us) { now_us_ = std::min(most_us_, std::max(now_us_, 2 * us + kLeastUs)); }
  // It did not.
  void Missed() { now_us_ = std::min(most_us_, std::max(kLeastUs, now_us_ / 2)); }

 private:
  static constexpr int64_t kLeastUs = 4;
  static constexpr uint32_t kProbe = 32;
  int64_t most_us_;
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

}  // namespace hvd
