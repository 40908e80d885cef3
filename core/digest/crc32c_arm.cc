#include <arm_acle.h>
#include <sys/auxv.h>

#include <cstring>

#include "digest/crc32c.h"

namespace hvd::crc32c {

namespace {

constexpr unsigned long kHasCrc32 = 1ul << 7;  // HWCAP_CRC32; headers of other systems lack it

// The instruction takes eight bytes and answers after two or three cycles: ten gigabytes a second,
// so there is no need for several streams.
[[gnu::target("+crc")]] uint32_t Instructions(const void* data, size_t bytes, uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~before;
  for (uint64_t word; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    crc = __crc32cd(crc, word);
  }
  for (; bytes > 0; ++at, --bytes) crc = __crc32cb(crc, *at);
  return ~crc;
}

}  // namespace

std::vector<Function> Hardware() {
  std::vector<Function> usable;
  if ((getauxval(AT_HWCAP) & kHasCrc32) != 0) usable.push_back(Instructions);
  return usable;
}

}  // namespace hvd::crc32c
