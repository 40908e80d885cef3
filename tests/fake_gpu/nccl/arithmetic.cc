#include "nccl/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cuda/settings.h"
#include "nccl/abi.h"

namespace fake_gpu {
namespace {

// A float of 16 or 8 bits in memory, with so many of them for the mantissa. Slow and plain: the
// tests compare the fast conversions of the core with it.
template <typename Bits, int kMantissa, int kBias>
struct Small {
  Bits bits;
};
using Float16 = Small<uint16_t, 10, 15>;
using Bfloat16 = Small<uint16_t, 7, 127>;
using Float8e4m3 = Small<uint8_t, 3, 7>;
using Float8e5m2 = Small<uint8_t, 2, 15>;

template <typename Bits>
constexpr int kSignOf = 1 << (8 * sizeof(Bits) - 1);

// float8e4m3 has numbers where others have infinity, and one NaN.
template <typename T>
constexpr bool kHasInfinity = !std::is_same_v<T, Float8e4m3>;

template <typename Bits, int kMantissa, int kBias>
float ToFloat(Small<Bits, kMantissa, kBias> small) {
  constexpr int kSign = kSignOf<Bits>;
  const int magnitude = small.bits & (kSign - 1);
  const int exponent = magnitude >> kMantissa;
  const int mantissa = small.bits & ((1 << kMantissa) - 1);
  const float sign = small.bits & kSign ? -1.0f : 1.0f;
  if (!kHasInfinity<decltype(small)>) {
    if (magnitude == kSign - 1) return std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == (kSign - 1) >> kMantissa) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  const int leading = exponent == 0 ? 0 : 1 << kMantissa;
  return sign * std::ldexp(static_cast<float>(leading + mantissa),
                           std::max(exponent, 1) - kBias - kMantissa);
}

// Of a finite float, without its sign. A mantissa that becomes 2.0 carries over.
template <int kMantissa, int kBias>
int NearestBits(float magnitude) {
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // in [2^(exponent-1), 2^exponent)
  const int biased = std::max(exponent - 1 + kBias, 1);
  // Ties to even, the mode that every program runs in.
  const float units = std::nearbyint(std::ldexp(magnitude, kMantissa + kBias - biased));
  return static_cast<int>(units) + ((biased - 1) << kMantissa);
}

// What is larger than all numbers is infinity; of 8 bits, as in CUDA's headers, the largest number.
template <typename Bits, int kMantissa, int kBias>
Small<Bits, kMantissa, kBias> ToSmall(float value) {
  using Result = Small<Bits, kMantissa, kBias>;
  constexpr int kAll = kSignOf<Bits> - 1;
  constexpr int kInfinity = kHasInfinity<Result> ? kAll >> kMantissa << kMantissa : kAll;
  constexpr int kEnd = sizeof(Bits) == 1 ? kInfinity - 1 : kInfinity;
  const int sign = std::signbit(value) ? kSignOf<Bits> : 0;
  if (std::isnan(value)) return {static_cast<Bits>(sign | kInfinity | 1 << (kMantissa - 1))};
  const float magnitude = std::fabs(value);
  const int bits = std::isinf(value) ? kEnd : NearestBits<kMantissa, kBias>(magnitude);
  return {static_cast<Bits>(sign | std::min(bits, kEnd))};
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

template <typename Bits, int kMantissa, int kBias>
struct Math<Small<Bits, kMantissa, kBias>> : Math<float> {
  using Type = Small<Bits, kMantissa, kBias>;
  static float Load(Type value) { return ToFloat(value); }
  static Type Store(float value) { return ToSmall<Bits, kMantissa, kBias>(value); }
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

bool HasDtype(int dtype) {
  return dtype >= 0 &&
         (dtype < kFloat8e4m3 || (dtype < kDtypes && TheSettings().nccl_version >= 22400));
}

bool CanReduce(int dtype) { return dtype < kFloat8e4m3 || TheSettings().capability >= 9; }

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
    case kFloat8e4m3:
      return ReduceAs<Float8e4m3>(op, inputs, count, out);
    case kFloat8e5m2:
      return ReduceAs<Float8e5m2>(op, inputs, count, out);
  }
}

void ScaleOfAverage(int dtype, int nranks, unsigned char* scale) {
  const float single = 1.0f / static_cast<float>(nranks);
  if (dtype == kFloat16) return StoreScale<Float16>(single, scale);
  if (dtype == kBfloat16) return StoreScale<Bfloat16>(single, scale);
  if (dtype == kFloat8e4m3) return StoreScale<Float8e4m3>(single, scale);
  if (dtype == kFloat8e5m2) return StoreScale<Float8e5m2>(single, scale);
  if (dtype == kFloat32) return StoreScale<float>(single, scale);
  const double exact = 1.0 / nranks;
  if (dtype == kFloat64) std::memcpy(scale, &exact, sizeof exact);
}

}  // namespace fake_gpu
