#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "transport/window.h"

namespace hvd {

// Cores that this process may use: affinity and cgroup quota, not the core count.
int UsableCores();

// Those that the ranks of this window may use together: the union of their affinities (ranks pinned
// to a core each have a core each), limited by the cgroup's quota. Collective and blocking; takes
// CoreCountBytes of the window. `links` are sockets to other ranks: the end of one ends the
// waiting, as no watcher looks at them yet.
Status CountCores(Window* window, const std::vector<int>& links, int64_t deadline_us, int* cores);
size_t CoreCountBytes();

}  // namespace hvd
