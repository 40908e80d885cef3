#pragma once

#include <cstdint>

namespace hvd {

// Cores that this process may use: affinity and cgroup quota, not the core count.
int UsableCores();
// Cores that any of the given affinity masks allows, limited by the quota. A mask is kMaskWords words.
constexpr int kMaskWords = 16;
void ReadAffinity(uint64_t mask[kMaskWords]);
int QuotaCores();

// How long to look for work before sleeping. Spinning is worth its CPU only while every rank of the host has
// a core; the time adapts to whether spinning was followed by work.
class Patience {
 public:
  Patience(int64_t most_us) : most_us_(most_us), now_us_(most_us) {}

  int64_t spin_us() const { return now_us_; }
  void Found() { now_us_ = now_us_ * 2 + 2 < most_us_ ? now_us_ * 2 + 2 : most_us_; }
  void Missed() { now_us_ = now_us_ / 2 > kLeastUs ? now_us_ / 2 : (most_us_ < kLeastUs ? most_us_ : kLeastUs); }

 private:
  static constexpr int64_t kLeastUs = 5;
  int64_t most_us_;
  int64_t now_us_;
};

inline void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd
