#pragma once

#include <cstdint>
#include <cstring>

namespace hvd {

struct Float16 {
  uint16_t bits;
};

struct Bfloat16 {
  uint16_t bits;
};

// The conversions have no branch, so that a loop over them vectorises, and are always inlined: an
// out-of-line copy compiled for one instruction set could be linked into code that runs on another.
#define HVD_INLINE [[gnu::always_inline]] inline

HVD_INLINE uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

HVD_INLINE float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// All ones where a < b, else 0; both below 2^31. Compilers turn a comparison here into a branch.
HVD_INLINE uint32_t Less(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<int32_t>(a - b) >> 31);
}

HVD_INLINE uint32_t Select(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}

// Exact. A signalling NaN becomes quiet, as the conversion instructions do.
HVD_INLINE float ToFloat(Float16 half) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const uint32_t magnitude = static_cast<uint32_t>(half.bits & 0x7fff) << 13;
  const uint32_t normal = magnitude + kRebias;
  // A subnormal is placed below the leading one of 2^-14, which is then subtracted.
  const uint32_t subnormal = FloatBits(BitsToFloat(normal + (1u << 23)) - BitsToFloat(113u << 23));
  const uint32_t quiet = Less(0x7c00u << 13, magnitude) & (1u << 22);
  const uint32_t special = (normal + kRebias) | quiet;
  const uint32_t finite = Select(Less(magnitude, 1u << 23), subnormal, normal);
  const uint32_t bits = Select(Less(magnitude, 0x7c00u << 13), finite, special);
  return BitsToFloat(bits | static_cast<uint32_t>(half.bits & 0x8000) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN with the top of its payload.
HVD_INLINE Float16 ToFloat16(float value) {
  constexpr uint32_t kInfinity = 255u << 23;
  constexpr uint32_t kOverflow = (127 + 16)
                                 << 23;  // 2^16: larger than whatever rounds to a finite half
  constexpr uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  constexpr uint32_t kShift = (127 - 15 + 14)
                              << 23;  // 0.5: its last bit is worth the smallest subnormal
  const uint32_t bits = FloatBits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded = magnitude - ((127u - 15) << 23) + 0xfff + ((magnitude >> 13) & 1);
  const uint32_t normal = rounded >> 13;
  const uint32_t subnormal = FloatBits(BitsToFloat(magnitude) + BitsToFloat(kShift)) - kShift;
  const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const uint32_t special = Select(Less(kInfinity, magnitude), nan, 0x7c00);
  const uint32_t finite = Select(Less(magnitude, kSmallestNormal), subnormal, normal);
  const uint32_t half = Select(Less(magnitude, kOverflow), finite, special);
  return {static_cast<uint16_t>(half | (bits >> 16 & 0x8000))};
}

HVD_INLINE float ToFloat(Bfloat16 value) {
  return BitsToFloat(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN with the top of its payload.
HVD_INLINE Bfloat16 ToBfloat16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40;
  return {static_cast<uint16_t>(Select(Less(255u << 23, bits & 0x7fffffff), nan, rounded))};
}

}  // namespace hvd
