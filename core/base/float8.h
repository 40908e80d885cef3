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

// Exact; NaN is quiet.
HVD_INLINE float ToFloat(Float8E5m2 value) {
  return ToFloat(Float16{static_cast<uint16_t>(value.bits << 8)});
}

// Exact; NaN is quiet.
HVD_INLINE float ToFloat(Float8E4m3fn value) {
  constexpr uint32_t kNan = 0x7fu << 20;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7f) << 20;
  const uint32_t normal = magnitude + ((127u - Float8E4m3fn::kBias) << 23);
  // A subnormal is placed below the leading one of 2^-6, which is then subtracted.
  const uint32_t subnormal = FloatBits(BitsToFloat(normal + (1u << 23)) - BitsToFloat(121u << 23));
  const uint32_t finite = Select(Less(magnitude, 1u << 23), subnormal, normal);
  const uint32_t bits = Select(Less(magnitude, kNan), finite, 0x7fc00000);
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

// Rounds to nearest, ties to even. What is larger than all becomes the largest, infinity too, as
// PyTorch 2.13 and CUDA convert it: there is no infinity to tell of it, and NaN stays for what is none.
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
