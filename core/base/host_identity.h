#pragma once

#include <cstdint>
#include <string>

namespace hvd {

// Names the running kernel and the process namespace on it: a process id means the same to two processes only
// if this is equal for both. 0: not known, and equal to nothing. `root` is put before every path.
uint64_t HostIdentity(const std::string& root = "");

}  // namespace hvd
