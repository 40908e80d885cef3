#include <immintrin.h>

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

// Of a register, without the inversions at both ends.
[[gnu::target("sse4.2,pclmul")]] uint32_t Continue(const uint8_t* at, size_t bytes,
                                                   uint32_t before) {
  uint64_t crc = before;
  at = Streams<kLongStream>(at, &bytes, &crc);
  at = Streams<kShortStream>(at, &bytes, &crc);
  for (; bytes >= sizeof(uint64_t); at += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
    crc = _mm_crc32_u64(crc, Load(at));
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; ++at, --bytes) rest = _mm_crc32_u8(rest, *at);
  return rest;
}

uint32_t Sse42(const void* data, size_t bytes, uint32_t before) {
  return ~Continue(static_cast<const uint8_t*>(data), bytes, ~before);
}

// Twice as fast again: multiplications that work on 64 bytes at once. Four such
// lines are kept, each of them congruent to all that came before it in its column: a line that is
// multiplied by x^2048 may be added to the one 256 bytes on. What they hold in the end is a message
// with the checksum of the whole.
constexpr size_t kLines = 4;
constexpr size_t kLineBytes = 64;
constexpr size_t kFoldBytes = kLines * kLineBytes;

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] uint32_t Avx512(const void* data, size_t bytes,
                                                                    uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~before;
  if (bytes >= 4 * kFoldBytes) {
    // Of each 16 bytes the first eight stand 64 places higher. The factors are 64 bits wide, and as
    // above a product is short of one x.
    constexpr uint64_t kFirst = uint64_t{PowerOfX(8 * kFoldBytes + 63)} << 32;
    constexpr uint64_t kSecond = uint64_t{PowerOfX(8 * kFoldBytes - 1)} << 32;
    const __m512i factors =
        _mm512_set4_epi64(static_cast<int64_t>(kSecond), static_cast<int64_t>(kFirst),
                          static_cast<int64_t>(kSecond), static_cast<int64_t>(kFirst));
    __m512i lines[kLines];
    for (size_t i = 0; i < kLines; ++i) lines[i] = _mm512_loadu_si512(at + i * kLineBytes);
    lines[0] = _mm512_xor_si512(
        lines[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int32_t>(crc))));
    for (at += kFoldBytes, bytes -= kFoldBytes; bytes >= kFoldBytes;
         at += kFoldBytes, bytes -= kFoldBytes) {
      for (size_t i = 0; i < kLines; ++i) {
        const __m512i first = _mm512_clmulepi64_epi128(lines[i], factors, 0x00);
        const __m512i second = _mm512_clmulepi64_epi128(lines[i], factors, 0x11);
        lines[i] =
            _mm512_ternarylogic_epi64(first, second, _mm512_loadu_si512(at + i * kLineBytes), 0x96);
      }
    }
    uint8_t folded[kFoldBytes];
    for (size_t i = 0; i < kLines; ++i) _mm512_storeu_si512(folded + i * kLineBytes, lines[i]);
    crc = Continue(folded, kFoldBytes, 0);
  }
  return ~Continue(at, bytes, crc);
}

}  // namespace

std::vector<Function> Hardware() {
  std::vector<Function> usable;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return usable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
    usable.push_back(Avx512);
  usable.push_back(Sse42);
  return usable;
}

}  // namespace hvd::crc32c
