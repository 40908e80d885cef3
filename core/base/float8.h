#pragma once

#include <cstdint>

#include "base/half.h"

// Floats of eight bits, of which the names say how many are exponent and mantissa. The conversions
// are those of half.h in a smaller format: without a branch, and always inlined.
namespace hvd {

// No infinity: its place is taken by numbers, up to 448, and all ones are NaN.
struct Float8E4m3fn {
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  uint8_t bits;
};

// The upper half of a float16.
struct Float8E5m2 {
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  uint8_t bits;
};

// The bits of the float that a number is, without its sign. Exact.
template <typename Float8>
HVD_INLINE uint32_t Float8Magnitude(Float8 value) {
  constexpr uint32_t kSmallestNormal = (127u - Float8::kBias + 1) << 23;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7f) << (23 - Float8::kMantissa);
  const uint32_t normal = magnitude + ((127u - Float8::kBias) << 23);
  // A subnormal is placed below the leading one of the smallest normal, which is then subtracted.
  const uint32_t subnormal =
      FloatBits(BitsToFloat(normal + (1u << 23)) - BitsToFloat(kSmallestNormal));
  return Select(Less(magnitude, 1u << 23), subnormal, normal);
}

constexpr uint32_t kQuietNan = 0x7fc00000;

HVD_INLINE float ToFloat(Float8E4m3fn value) {
  const uint32_t magnitude = value.bits & 0x7f;
  const uint32_t bits = Select(Less(magnitude, 0x7f), Float8Magnitude(value), kQuietNan);
  return BitsToFloat(bits | static_cast<uint32_t>(value.bits & 0x80) << 24);
}

HVD_INLINE float ToFloat(Float8E5m2 value) {
  constexpr uint32_t kInfinity = 0x7c;
  const uint32_t magnitude = value.bits & 0x7f;
  const uint32_t special = Select(Less(kInfinity, magnitude), kQuietNan, 255u << 23);
  const uint32_t bits = Select(Less(magnitude, kInfinity), Float8Magnitude(value), special);
  return BitsToFloat(bits | static_cast<uint32_t>(value.bits & 0x80) << 24);
}

// The bits, without a sign, of what is nearest to a finite float of these bits and of a magnitude
// that the format has; ties to even.
template <typename Float8>
HVD_INLINE uint32_t NearestFloat8(uint32_t magnitude) {
  constexpr int kDropped = 23 - Float8::kMantissa;
  constexpr uint32_t kSmallestNormal = (127u - Float8::kBias + 1) << 23;
  constexpr uint32_t kShift = kSmallestNormal + (static_cast<uint32_t>(kDropped)
                                                 << 23);  // its last bit: the smallest subnormal
  const uint32_t tie = (1u << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1);
  const uint32_t normal = (magnitude - ((127u - Float8::kBias) << 23) + tie) >> kDropped;
  const uint32_t subnormal = FloatBits(BitsToFloat(magnitude) + BitsToFloat(kShift)) - kShift;
  return Select(Less(magnitude, kSmallestNormal), subnormal, normal);
}

// Rounds to nearest, ties to even. What is larger than all numbers, infinity too, becomes the
// largest, as PyTorch 2.13 and CUDA convert it.
HVD_INLINE Float8E4m3fn ToFloat8E4m3fn(float value) {
  constexpr uint32_t kLargest = 0x43e00000;  // 448
  const uint32_t bits = FloatBits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t within = Select(Less(kLargest, magnitude), kLargest, magnitude);
  const uint32_t number = NearestFloat8<Float8E4m3fn>(within);
  const uint32_t result = Select(Less(255u << 23, magnitude), 0x7f, number);
  return {static_cast<uint8_t>(result | (bits >> 24 & 0x80))};
}

// Rounds to nearest, ties to even; from 61440 on that is infinity.
HVD_INLINE Float8E5m2 ToFloat8E5m2(float value) {
  constexpr uint32_t kOverflow = (127 + 16) << 23;  // 2^16, which the carry gives the right bits
  const uint32_t bits = FloatBits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t within = Select(Less(kOverflow, magnitude), kOverflow, magnitude);
  const uint32_t number = NearestFloat8<Float8E5m2>(within);
  const uint32_t result = Select(Less(255u << 23, magnitude), 0x7f, number);
  return {static_cast<uint8_t>(result | (bits >> 24 & 0x80))};
}

}  // namespace hvd
