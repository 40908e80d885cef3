#pragma once

#include <cstdint>
#include <string>

namespace hvd::shm {

// How many bytes of memory this process may still take without another being killed for it: what the kernel
// calls available, or what the memory cgroup leaves when that is less. A memfd is bounded by nothing else:
// to reserve too much would summon the OOM killer instead of failing. `root` is put before every path.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace hvd::shm
