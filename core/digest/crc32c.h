#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

// The Castagnoli checksum (RFC 3720): of data frames over TCP. To continue a checksum, pass it as
// `before`.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t before = 0);

namespace crc32c {
using Function = uint32_t (*)(const void* data, size_t bytes, uint32_t before);
uint32_t Portable(const void* data, size_t bytes, uint32_t before);
// By the processor's own instructions: those that it has, the fastest first. One file per processor
// family defines it.
std::vector<Function> Hardware();
}  // namespace crc32c

}  // namespace hvd
