#pragma once

#include <ctime>

#include <cstdint>

namespace hvd {

// Time since an arbitrary start that no adjustment of the wall clock moves.
inline int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline int64_t NowMicros() { return NowNanos() / 1000; }

}  // namespace hvd
