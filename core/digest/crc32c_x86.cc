#include <nmmintrin.h>
#include <wmmintrin.h>

#include <cstring>

#include "digest/crc32c.h"

namespace hvd::crc32c {

namespace {

// The instruction takes eight bytes a cycle but answers after three, so three streams of equal
// length run side by side. Long ones make joining them cheap, short ones leave little over.
constexpr size_t kStreams = 3;
constexpr size_t kLongStream = 4096;
constexpr size_t kShortStream = 128;

// x^exponent modulo the polynomial. Reflected, as everything here: bit i stands for x^(31-i).
constexpr uint32_t PowerOfX(size_t exponent) {
  uint32_t power = 1u << 31;
  for (size_t i = 0; i < exponent; ++i) power = power >> 1 ^ (power & 1 ? 0x82f63b78u : 0);
  return power;
}

// What a checksum is multiplied by when so many bytes follow it. A product without carries of two
// reflected numbers is short of one factor x, and the instruction, which reduces it, adds 32.
constexpr uint32_t PastBytes(size_t bytes) { return PowerOfX(8 * bytes - 33); }

uint64_t Load(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

[[gnu::target("sse4.2,pclmul")]] inline uint64_t Product(uint64_t crc, uint32_t factor) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)),
                                               _mm_cvtsi64_si128(factor), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

// Takes as many groups of three streams as there are; returns where they end.
template <size_t kBytes>
[[gnu::target("sse4.2,pclmul")]] inline const uint8_t* Streams(const uint8_t* at, size_t* bytes,
                                                               uint64_t* crc) {
  constexpr uint32_t kPastTwo = PastBytes(2 * kBytes);
  constexpr uint32_t kPastOne = PastBytes(kBytes);
  for (; *bytes >= kStreams * kBytes; at += kStreams * kBytes, *bytes -= kStreams * kBytes) {
    uint64_t first = *crc;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
      first = _mm_crc32_u64(first, Load(at + i));
      second = _mm_crc32_u64(second, Load(at + kBytes + i));
      third = _mm_crc32_u64(third, Load(at + 2 * kBytes + i));
    }
    *crc = third ^ _mm_crc32_u64(0, Product(first, kPastTwo) ^ Product(second, kPastOne));
  }
  return at;
}

[[gnu::target("sse4.2,pclmul")]] uint32_t Sse42(const void* data, size_t bytes, uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t crc = ~before;
  at = Streams<kLongStream>(at, &bytes, &crc);
  at = Streams<kShortStream>(at, &bytes, &crc);
  for (; bytes >= sizeof(uint64_t); at += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
    crc = _mm_crc32_u64(crc, Load(at));
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; ++at, --bytes) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}

}  // namespace

Function Hardware() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? Sse42 : nullptr;
}

}  // namespace hvd::crc32c
