#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hvd {

// Since when this rank has done nothing but wait in the library: some thread of it waits, and none has
// submitted anything or come back from a wait. A deadlock is proved when this holds for every rank of the
// job, for then nobody is left who could submit what is missing. A rank that computes is never blocked.
class Blocked {
 public:
  // Around a wait that has lasted for a while already; cheap ones need not be told.
  void Enter(int64_t now_us) {
    waiting_.fetch_add(1);
    Touch(now_us);
  }
  void Leave(int64_t now_us) {
    Touch(now_us);
    waiting_.fetch_sub(1);
  }
  void Touch(int64_t now_us) { quiet_since_us_.store(now_us, std::memory_order_relaxed); }

  int64_t Micros(int64_t now_us) const {
    return waiting_.load() == 0 ? 0 : std::max<int64_t>(0, now_us - quiet_since_us_.load());
  }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<int64_t> quiet_since_us_{0};
};

}  // namespace hvd
