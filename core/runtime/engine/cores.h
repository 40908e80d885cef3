#pragma once

#include <cstddef>

#include "base/status.h"
#include "transport/window.h"

namespace hvd {

// Cores that the ranks of this window may use together: the union of their affinities (ranks pinned to a
// core each have a core each), limited by the cgroup's quota. Collective and blocking;
// takes so many bytes of the window.
size_t CensusBytes();
Status CountCores(Window* window, int64_t deadline_us, int* cores);

}  // namespace hvd
