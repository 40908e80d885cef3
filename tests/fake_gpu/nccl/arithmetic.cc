#include "nccl/arithmetic.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "nccl/abi.h"

namespace fake_gpu {
namespace {

// A float of 16 bits in memory, with so many of them for the mantissa. Slow and plain: the tests
// compare the fast conversions of the core with it.
template <int kMantissa, int kBias>
struct Half {
  uint16_t bits;
};
using Float16 = Half<10, 15>;
using Bfloat16 = Half<7, 127>;

template <int kMantissa, int kBias>
float ToFloat(Half<kMantissa, kBias> half) {
  const int exponent = (half.bits & 0x7fff) >> kMantissa;
  const int mantissa = half.bits & ((1 << kMantissa) - 1);
  const float sign = half.bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 2 * kBias + 1) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  const int leading = exponent == 0 ? 0 : 1 << kMantissa;
  return sign * std::ldexp(static_cast<float>(leading + mantissa),
                           std::max(exponent, 1) - kBias - kMantissa);
}

template <int kMantissa, int kBias>
Half<kMantissa, kBias> ToHalf(float value) {
  constexpr int kSpecial = (2 * kBias + 1) << kMantissa;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return {static_cast<uint16_t>(sign | kSpecial | 1 << (kMantissa - 1))};
  if (std::isinf(value)) return {static_cast<uint16_t>(sign | kSpecial)};
  if (value == 0) return {static_cast<uint16_t>(sign)};
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int biased = std::max(exponent - 1 + kBias, 1);
  // Ties to even, the mode that every program runs in. A mantissa that becomes 2.0 carries over.
  const float units = std::nearbyint(std::ldexp(std::fabs(value), kMantissa + kBias - biased));
  const int bits = static_cast<int>(units) + ((biased - 1) << kMantissa);
  return {static_cast<uint16_t>(sign | std::min(bits, kSpecial))};
}

// How to compute with T: in which type, and how to add and multiply there.
template <typename T>
struct Math {
  using Wide = T;
  static Wide Load(T value) { return value; }
  static T Store(Wide value) { return value; }
  static Wide Add(Wide a, Wide b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
  static Wide Multiply(Wide a, Wide b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

template <int kMantissa, int kBias>
struct Math<Half<kMantissa, kBias>> : Math<float> {
  static float Load(Half<kMantissa, kBias> value) { return ToFloat(value); }
  static Half<kMantissa, kBias> Store(float value) { return ToHalf<kMantissa, kBias>(value); }
};

template <typename T>
typename Math<T>::Wide LoadFrom(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(T), sizeof(T));
  return Math<T>::Load(value);
}

template <typename Wide, typename M>
Wide Combine(int op, Wide a, Wide b) {
  switch (op) {
    case kProd:
      return M::Multiply(a, b);
    case kMax:
      return b > a ? b : a;
    case kMin:
      return b < a ? b : a;
    default:
      return M::Add(a, b);
  }
}

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T>;

// Whether every input is multiplied first. An average of integers is divided at the end instead.
template <typename T>
bool IsScaled(int op) {
  return op >= kFirstCreated || (op == kAvg && !kIsInteger<T>);
}

template <typename T>
void ReduceAs(int op, const std::vector<Input>& inputs, size_t count, std::byte* out) {
  using M = Math<T>;
  using Wide = typename M::Wide;
  for (size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      Wide value = LoadFrom<T>(inputs[rank].data, i);
      if (IsScaled<T>(op)) value = M::Multiply(value, LoadFrom<T>(inputs[rank].scale, 0));
      sum = rank == 0 ? value : Combine<Wide, M>(op, sum, value);
    }
    if constexpr (kIsInteger<T>) {
      using Widest = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      if (op == kAvg) sum = static_cast<T>(Widest{sum} / static_cast<Widest>(inputs.size()));
    }
    const T result = M::Store(sum);
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

template <typename T>
void StoreScale(float value, unsigned char* scale) {
  const T stored = Math<T>::Store(value);
  std::memcpy(scale, &stored, sizeof(T));
}

}  // namespace

bool CanReduce(int dtype) { return dtype != kFloat8e4m3 && dtype != kFloat8e5m2; }

void Reduce(int dtype, int op, const std::vector<Input>& inputs, size_t count, std::byte* out) {
  switch (dtype) {
    case kInt8:
      return ReduceAs<int8_t>(op, inputs, count, out);
    case kUint8:
      return ReduceAs<uint8_t>(op, inputs, count, out);
    case kInt32:
      return ReduceAs<int32_t>(op, inputs, count, out);
    case kUint32:
      return ReduceAs<uint32_t>(op, inputs, count, out);
    case kInt64:
      return ReduceAs<int64_t>(op, inputs, count, out);
    case kUint64:
      return ReduceAs<uint64_t>(op, inputs, count, out);
    case kFloat16:
      return ReduceAs<Float16>(op, inputs, count, out);
    case kFloat32:
      return ReduceAs<float>(op, inputs, count, out);
    case kFloat64:
      return ReduceAs<double>(op, inputs, count, out);
    case kBfloat16:
      return ReduceAs<Bfloat16>(op, inputs, count, out);
  }
}

void ScaleOfAverage(int dtype, int nranks, unsigned char* scale) {
  if (dtype == kFloat16) return StoreScale<Float16>(1.0f / static_cast<float>(nranks), scale);
  if (dtype == kBfloat16) return StoreScale<Bfloat16>(1.0f / static_cast<float>(nranks), scale);
  if (dtype == kFloat32) return StoreScale<float>(1.0f / static_cast<float>(nranks), scale);
  const double exact = 1.0 / nranks;
  if (dtype == kFloat64) std::memcpy(scale, &exact, sizeof exact);
}

}  // namespace fake_gpu
