#include <nmmintrin.h>

#include <cstring>

#include "digest/crc32c.h"

namespace hvd::crc32c {

namespace {

[[gnu::target("sse4.2")]] uint32_t Sse42(const void* data, size_t bytes, uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t crc = ~before;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; ++at, --bytes) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}

}  // namespace

Function Hardware() { return __builtin_cpu_supports("sse4.2") ? Sse42 : nullptr; }

}  // namespace hvd::crc32c
