#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace hvd {

// Time since an arbitrary start that no adjustment of the wall clock moves.
inline int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline int64_t NowMicros() { return NowNanos() / 1000; }

// The first of two times, of which -1 means "never".
inline int64_t Earlier(int64_t a, int64_t b) { return a < 0 ? b : (b < 0 ? a : std::min(a, b)); }

}  // namespace hvd
