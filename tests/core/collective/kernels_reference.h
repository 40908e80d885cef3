#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/collective.h"

// What a reduction must give, computed one element at a time from the definitions: floats in double
// with a rounding per step (exact for float32 arithmetic), integers in 128 bits, 16-bit floats by
// scaling and rounding, 8-bit floats by looking for the nearest.
namespace hvd::reference {

// A binary format of `precision` significant bits in 16 bits of storage.
struct Format {
  int mantissa;  // stored bits
  int bias;
};
constexpr Format kHalf{10, 15};
constexpr Format kBfloat{7, 127};

inline double Decode(uint16_t bits, Format f) {
  const int exponent_bits = 15 - f.mantissa;
  const int field = bits >> f.mantissa & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << f.mantissa) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (field == (1 << exponent_bits) - 1) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (field == 0) return sign * std::ldexp(fraction, 1 - f.bias - f.mantissa);
  return sign * std::ldexp(fraction + (1 << f.mantissa), field - f.bias - f.mantissa);
}

inline uint16_t Encode(double value, Format f) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(0x7fff >> f.mantissa << f.mantissa);
  if (std::isnan(value)) return infinity | 1 << (f.mantissa - 1);
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  const int lowest = 1 - f.bias;
  const int exponent = std::max(std::ilogb(value), lowest);
  // nearbyint rounds ties to even. A carry into the next binade is the next encoding by itself.
  const double steps = std::nearbyint(std::ldexp(std::fabs(value), f.mantissa - exponent));
  const double code = steps + std::ldexp(static_cast<double>(exponent - lowest), f.mantissa);
  return sign | (code >= infinity ? infinity : static_cast<uint16_t>(code));
}

struct HalfCodec {
  using Storage = uint16_t;
  static double Load(Storage s) { return Decode(s, kHalf); }
  static Storage Save(double v) { return Encode(v, kHalf); }
  static double Round(double v) { return static_cast<float>(v); }
};

struct BfloatCodec {
  using Storage = uint16_t;
  static double Load(Storage s) { return Decode(s, kBfloat); }
  static Storage Save(double v) { return Encode(v, kBfloat); }
  static double Round(double v) { return static_cast<float>(v); }
};

// Eight bits, by looking for the nearest of all numbers that there are.
template <int kMantissa, int kBias, bool kInfinity>
struct Float8Codec {
  using Storage = uint8_t;
  static constexpr int kNan = 0x7f;
  // The first that is no number: infinity, or NaN.
  static constexpr int kEnd = kInfinity ? 0x80 - (1 << kMantissa) : kNan;

  static double Number(int magnitude) {
    const int field = magnitude >> kMantissa;
    const int fraction = magnitude & ((1 << kMantissa) - 1);
    const int leading = field == 0 ? 0 : 1 << kMantissa;
    return std::ldexp(fraction + leading, (field == 0 ? 1 : field) - kBias - kMantissa);
  }
  // By their bits. Where it would go on, the format of five exponent bits has infinity.
  static const std::vector<double>& Numbers() {
    static const std::vector<double> numbers = [] {
      std::vector<double> all;
      for (int bits = 0; bits < kEnd + (kInfinity ? 1 : 0); ++bits) all.push_back(Number(bits));
      return all;
    }();
    return numbers;
  }
  static double Load(Storage s) {
    const double sign = s & 0x80 ? -1.0 : 1.0;
    const int magnitude = s & 0x7f;
    if (magnitude < kEnd) return sign * Number(magnitude);
    return kInfinity && magnitude == kEnd ? sign * INFINITY : std::nan("");
  }
  static Storage Save(double v) {
    const int sign = std::signbit(v) ? 0x80 : 0;
    if (std::isnan(v)) return static_cast<Storage>(kNan | sign);
    const std::vector<double>& numbers = Numbers();
    const double magnitude = std::fabs(v);
    const auto after = std::lower_bound(numbers.begin(), numbers.end(), magnitude);
    auto nearest = static_cast<int>(after - numbers.begin());
    if (after == numbers.end()) {
      --nearest;
    } else if (nearest > 0) {
      const double down = magnitude - numbers[nearest - 1];
      const double up = numbers[nearest] - magnitude;
      if (down < up || (down == up && nearest % 2 == 1)) --nearest;
    }
    return static_cast<Storage>(nearest | sign);
  }
  static double Round(double v) { return static_cast<float>(v); }
};
using E4m3fnCodec = Float8Codec<3, 7, false>;
using E5m2Codec = Float8Codec<2, 15, true>;

template <typename T>
struct NumberCodec {
  using Storage = T;
  static double Load(Storage s) { return s; }
  static Storage Save(double v) { return static_cast<T>(v); }
  static double Round(double v) { return static_cast<T>(v); }
};

inline double CombineFloat(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::isnan(a) || a <= b ? a : b;
    case ReduceOp::kMax:
      return std::isnan(a) || a >= b ? a : b;
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

template <typename Codec>
typename Codec::Storage FloatElement(const Reduction& r,
                                     const std::vector<typename Codec::Storage>& inputs) {
  const auto prescaled = [&](auto bits) {
    return Codec::Round(Codec::Load(bits) * Codec::Round(r.prescale));
  };
  double result = prescaled(inputs[0]);
  for (size_t s = 1; s < inputs.size(); ++s) {
    result = Codec::Round(CombineFloat(r.op, result, prescaled(inputs[s])));
  }
  return Codec::Save(
      Codec::Round(result * Codec::Round(r.postscale / static_cast<double>(r.divisor))));
}

template <typename T>
T ScaleInteger(T value, double factor) {
  if (factor == 1.0) return value;
  const double exact = std::trunc(static_cast<double>(value) * factor);
  if (static_cast<long double>(exact) <= std::numeric_limits<T>::min())
    return std::numeric_limits<T>::min();
  if (static_cast<long double>(exact) >= std::numeric_limits<T>::max())
    return std::numeric_limits<T>::max();
  return static_cast<T>(exact);
}

template <typename T>
T IntegerElement(const Reduction& r, const std::vector<T>& inputs) {
  __extension__ using Wide = __int128;
  Wide result = ScaleInteger(inputs[0], r.prescale);
  for (size_t s = 1; s < inputs.size(); ++s) {
    const Wide next = ScaleInteger(inputs[s], r.prescale);
    if (r.op == ReduceOp::kMin) result = std::min(result, next);
    if (r.op == ReduceOp::kMax) result = std::max(result, next);
    if (r.op == ReduceOp::kProduct) result = static_cast<T>(static_cast<uint64_t>(result * next));
    if (r.op == ReduceOp::kSum || r.op == ReduceOp::kAverage)
      result = static_cast<T>(result + next);
  }
  return ScaleInteger(static_cast<T>(result / r.divisor), r.postscale);
}

inline uint8_t BoolElement(const Reduction& r, const std::vector<uint8_t>& inputs) {
  bool any = false;
  bool all = true;
  for (uint8_t input : inputs) {
    any = any || input != 0;
    all = all && input != 0;
  }
  return r.op == ReduceOp::kMin || r.op == ReduceOp::kProduct ? all : any;
}

}  // namespace hvd::reference
