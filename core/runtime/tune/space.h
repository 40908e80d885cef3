#pragma once

#include <cstdint>

#include "runtime/tune/autotune.h"

namespace hvd {

// Every value worth trying, and `start`, which is tried first: thresholds of 0 and from 64 KiB to 64 MiB,
// windows from what still gathers tensors up to the longest, crossovers from 1 to 64 KiB.
AutotuneOptions SearchSpace(const Tuned& start, int64_t longest_window_us);

}  // namespace hvd
