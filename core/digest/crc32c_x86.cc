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

// The checksum of three streams of `kBytes` one after the other, from that of each.
template <size_t kBytes>
[[gnu::target("sse4.2,pclmul")]] inline uint64_t Join(uint64_t first, uint64_t second,
                                                      uint64_t third) {
  constexpr uint32_t kPastTwo = PastBytes(2 * kBytes);
  constexpr uint32_t kPastOne = PastBytes(kBytes);
  return third ^ _mm_crc32_u64(0, Product(first, kPastTwo) ^ Product(second, kPastOne));
}

// Takes as many groups of three streams as there are; returns where they end.
template <size_t kBytes>
[[gnu::target("sse4.2,pclmul")]] inline const uint8_t* Streams(const uint8_t* at, size_t* bytes,
                                                               uint64_t* crc) {
  for (; *bytes >= kStreams * kBytes; at += kStreams * kBytes, *bytes -= kStreams * kBytes) {
    uint64_t first = *crc;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
      first = _mm_crc32_u64(first, Load(at + i));
      second = _mm_crc32_u64(second, Load(at + kBytes + i));
      third = _mm_crc32_u64(third, Load(at + 2 * kBytes + i));
    }
    *crc = Join<kBytes>(first, second, third);
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

// Twice as fast again: multiplications that work on 64 bytes at once. Four such lines are kept,
// each of them congruent to all that came before it in its column: a line that is multiplied by
// x^2048 may be added to the one 256 bytes on. What they hold in the end is a message with the
// checksum of the whole.
constexpr size_t kLines = 4;
constexpr size_t kLineBytes = 64;
constexpr size_t kFoldBytes = kLines * kLineBytes;

// The unit that multiplies leaves that of the instruction idle. So the last part of a long message
// is left to three streams, which go on beside the lines: in each fold by some words.
constexpr size_t kFolds = 64;  // until the streams are joined
constexpr size_t kWords = 4;   // of each stream in a fold
constexpr size_t kBesideStream = kFolds * kWords * sizeof(uint64_t);
constexpr size_t kBesideBytes = kStreams * kBesideStream;
constexpr size_t kGroupBytes = kFolds * kFoldBytes + kBesideBytes;

// The lines of what has been taken; the next follow at `at`.
struct Lines {
  __m512i line[kLines];
  const uint8_t* at;
};

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] inline void Fold(Lines* lines) {
  // Of each 16 bytes the first eight stand 64 places higher. The factors are 64 bits wide, and as
  // above a product is short of one x.
  constexpr uint64_t kFirst = uint64_t{PowerOfX(8 * kFoldBytes + 63)} << 32;
  constexpr uint64_t kSecond = uint64_t{PowerOfX(8 * kFoldBytes - 1)} << 32;
  const __m512i factors =
      _mm512_set4_epi64(static_cast<int64_t>(kSecond), static_cast<int64_t>(kFirst),
                        static_cast<int64_t>(kSecond), static_cast<int64_t>(kFirst));
  for (size_t i = 0; i < kLines; ++i) {
    const __m512i first = _mm512_clmulepi64_epi128(lines->line[i], factors, 0x00);
    const __m512i second = _mm512_clmulepi64_epi128(lines->line[i], factors, 0x11);
    const __m512i next = _mm512_loadu_si512(lines->at + i * kLineBytes);
    lines->line[i] = _mm512_ternarylogic_epi64(first, second, next, 0x96);
  }
  lines->at += kFoldBytes;
}

// A group's folds, and beside them its streams at `beside`.
[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] inline uint64_t FoldBeside(
    Lines* lines, const uint8_t* beside, uint64_t crc) {
  uint64_t streams[kStreams] = {crc, 0, 0};
  for (size_t fold = 0; fold < kFolds; ++fold) {
    Fold(lines);
    for (size_t i = 0; i < kWords; ++i, beside += sizeof(uint64_t)) {
      for (size_t k = 0; k < kStreams; ++k)
        streams[k] = _mm_crc32_u64(streams[k], Load(beside + k * kBesideStream));
    }
  }
  return Join<kBesideStream>(streams[0], streams[1], streams[2]);
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] uint32_t Avx512(const void* data, size_t bytes,
                                                                    uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  if (bytes < 4 * kFoldBytes) return ~Continue(at, bytes, ~before);
  const size_t groups = (bytes - kFoldBytes) / kGroupBytes;
  const uint8_t* beside = at + (bytes - groups * kBesideBytes) / kFoldBytes * kFoldBytes;
  Lines lines;
  for (size_t i = 0; i < kLines; ++i) lines.line[i] = _mm512_loadu_si512(at + i * kLineBytes);
  lines.line[0] = _mm512_xor_si512(
      lines.line[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int32_t>(~before))));
  lines.at = at + kFoldBytes;
  const uint8_t* const end_of_lines = beside;
  uint64_t of_beside = 0;
  for (size_t group = 0; group < groups; ++group, beside += kBesideBytes)
    of_beside = FoldBeside(&lines, beside, of_beside);
  while (lines.at < end_of_lines) Fold(&lines);
  uint8_t folded[kFoldBytes];
  for (size_t i = 0; i < kLines; ++i) _mm512_storeu_si512(folded + i * kLineBytes, lines.line[i]);
  uint64_t crc = Continue(folded, kFoldBytes, 0);
  for (size_t group = 0; group < groups; ++group) crc = Join<kBesideBytes / 2>(crc, 0, 0);
  crc ^= of_beside;
  const size_t taken = static_cast<size_t>(beside - at);
  return ~Continue(beside, bytes - taken, static_cast<uint32_t>(crc));
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
