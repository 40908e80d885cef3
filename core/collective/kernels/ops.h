#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/half.h"

// The arithmetic of one element (or of one vector register of them). Included only by loops.h; the
// unnamed namespace gives every instruction set its own copy.
namespace hvd::kernels {
namespace {

// Integers wrap: computed unsigned, and never narrower than int, whose overflow is undefined.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Sum {
  template <typename V>
  HVD_INLINE static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return static_cast<V>(static_cast<Wrapping<V>>(a) + static_cast<Wrapping<V>>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename V>
  HVD_INLINE static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return static_cast<V>(static_cast<Wrapping<V>>(a) * static_cast<Wrapping<V>>(b));
    } else {
      return a * b;
    }
  }
};

// A NaN on either side wins, the first of two; of equal values the first stays.
struct Min {
  template <typename V>
  HVD_INLINE static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return a <= b ? a : b;
    } else {
      return ((a <= b) | (a != a)) ? a : b;
    }
  }
};

struct Max {
  template <typename V>
  HVD_INLINE static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return a >= b ? a : b;
    } else {
      return ((a >= b) | (a != a)) ? a : b;
    }
  }
};

// The integer nearest to `value` toward zero; what lies outside of T becomes its nearest limit, NaN
// becomes 0.
template <typename T>
HVD_INLINE T Saturate(double value) {
  using Limits = std::numeric_limits<T>;
  // A 64-bit maximum is no double: clamp to the largest double below, and restore the maximum
  // afterwards.
  constexpr bool kWide = sizeof(T) == 8;
  constexpr double kLow = static_cast<double>(Limits::min());
  constexpr double kEnd =
      kWide ? static_cast<double>(uint64_t{1} << 63) * (std::is_signed_v<T> ? 1 : 2) : 0;
  constexpr double kHigh =
      kWide ? kEnd - (std::is_signed_v<T> ? 1024 : 2048) : static_cast<double>(Limits::max());
  double inside = value == value ? value : 0.0;
  inside = inside < kLow ? kLow : inside;
  inside = inside > kHigh ? kHigh : inside;
  using Through =
      std::conditional_t<(sizeof(T) < 4), int32_t, std::conditional_t<sizeof(T) == 4, int64_t, T>>;
  const T result = static_cast<T>(static_cast<Through>(inside));
  if constexpr (kWide) return value >= kEnd ? Limits::max() : result;
  return result;
}

// Exact quotient toward zero. Up to 32 bits it is taken in floating registers, where division
// vectorises: a quotient that is no integer is further from the next one than a mantissa wider than
// T rounds, so truncation is exact.
template <typename T>
HVD_INLINE T Divide(T value, int64_t divisor) {
  if constexpr (sizeof(T) <= 2) {
    return static_cast<T>(
        static_cast<int32_t>(static_cast<float>(value) / static_cast<float>(divisor)));
  } else if constexpr (sizeof(T) == 4) {
    return static_cast<T>(
        static_cast<int64_t>(static_cast<double>(value) / static_cast<double>(divisor)));
  } else {
    return value / static_cast<T>(divisor);
  }
}

}  // namespace
}  // namespace hvd::kernels
