#pragma once

// Random tensors, and what a collective must make of them.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/collective.h"
#include "collective/kernels_reference.h"

namespace hvd::test {

using Bytes = std::vector<std::byte>;

// Elements of which sums and products of eight are exact in every type: rounding does not depend on
// order.
enum class Values { kAny, kExact };

template <typename T>
T RandomInteger(std::mt19937_64& random) {
  return static_cast<T>(random());
}

inline double RandomReal(DataType dtype, std::mt19937_64& random, Values values) {
  if (values == Values::kAny) return std::uniform_real_distribution<double>(-2, 2)(random);
  constexpr double kChoices[] = {-2, -1, 1, 2, 1, 1, -1, 1};
  const double choice = kChoices[random() % 8];
  return dtype == DataType::kFloat8E5m2 ? std::copysign(1, choice) : choice;  // it has no 9
}

// Calls visit(codec) for a floating type, with the codec of the reference.
template <typename Visit>
void WithCodec(DataType dtype, Visit visit) {
  if (dtype == DataType::kFloat16) visit(reference::HalfCodec());
  if (dtype == DataType::kBfloat16) visit(reference::BfloatCodec());
  if (dtype == DataType::kFloat8E4m3fn) visit(reference::E4m3fnCodec());
  if (dtype == DataType::kFloat8E5m2) visit(reference::E5m2Codec());
  if (dtype == DataType::kFloat32) visit(reference::NumberCodec<float>());
  if (dtype == DataType::kFloat64) visit(reference::NumberCodec<double>());
}

// Calls visit(T()) for an integer type.
template <typename Visit>
void WithInteger(DataType dtype, Visit visit) {
  if (dtype == DataType::kUint8) visit(uint8_t());
  if (dtype == DataType::kInt8) visit(int8_t());
  if (dtype == DataType::kUint16) visit(uint16_t());
  if (dtype == DataType::kInt16) visit(int16_t());
  if (dtype == DataType::kInt32) visit(int32_t());
  if (dtype == DataType::kInt64) visit(int64_t());
  if (dtype == DataType::kUint32) visit(uint32_t());
  if (dtype == DataType::kUint64) visit(uint64_t());
}

template <typename T>
T Get(const Bytes& tensor, size_t i) {
  T value;
  std::memcpy(&value, tensor.data() + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void Put(Bytes* tensor, size_t i, T value) {
  std::memcpy(tensor->data() + i * sizeof value, &value, sizeof value);
}

inline Bytes RandomTensor(DataType dtype, int64_t elements, Values values,
                          std::mt19937_64& random) {
  const auto count = static_cast<size_t>(elements);
  Bytes tensor(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    WithCodec(dtype,
              [&](auto codec) { Put(&tensor, i, codec.Save(RandomReal(dtype, random, values))); });
    WithInteger(dtype, [&](auto zero) { Put(&tensor, i, RandomInteger<decltype(zero)>(random)); });
    if (dtype == DataType::kBool) Put(&tensor, i, static_cast<uint8_t>(random() % 2));
  }
  return tensor;
}

// `inputs` in rank order. Only for allreduce.
inline Bytes Reduced(const Reduction& reduction, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  const size_t count = result.size() / SizeOf(reduction.dtype);
  const auto each = [&](auto zero, auto element) {
    std::vector<decltype(zero)> column(inputs.size());
    for (size_t i = 0; i < count; ++i) {
      for (size_t rank = 0; rank < inputs.size(); ++rank)
        column[rank] = Get<decltype(zero)>(inputs[rank], i);
      Put(&result, i, element(column));
    }
  };
  WithCodec(reduction.dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Storage = typename Codec::Storage;
    each(Storage(), [&](const std::vector<Storage>& c) {
      return reference::FloatElement<Codec>(reduction, c);
    });
  });
  WithInteger(reduction.dtype, [&](auto zero) {
    using T = decltype(zero);
    each(zero, [&](const std::vector<T>& c) { return reference::IntegerElement<T>(reduction, c); });
  });
  if (reduction.dtype == DataType::kBool) {
    each(uint8_t(),
         [&](const std::vector<uint8_t>& c) { return reference::BoolElement(reduction, c); });
  }
  return result;
}

// The last place of a number near 1, and a few.
inline double UnitOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat8E5m2:
      return 0x1p-1;
    case DataType::kFloat8E4m3fn:
      return 0x1p-2;
    case DataType::kBfloat16:
      return 0x1p-6;
    case DataType::kFloat16:
      return 0x1p-9;
    default:
      return 0x1p-21;
  }
}

// Whether a result is what an implementation of another order and rounding may give, which
// multiplies each input by a factor in the element's type: floats to a few units of their last
// place.
inline bool IsClose(DataType dtype, const Bytes& result, const Bytes& expected) {
  if (!IsFloating(dtype)) return result == expected;
  bool close = result.size() == expected.size();
  WithCodec(dtype, [&](auto codec) {
    using Storage = typename decltype(codec)::Storage;
    const double unit = UnitOf(dtype);
    for (size_t i = 0; close && i < expected.size() / sizeof(Storage); ++i) {
      const double wanted = codec.Load(Get<Storage>(expected, i));
      const double found = codec.Load(Get<Storage>(result, i));
      close = std::fabs(found - wanted) <= unit * std::max(1.0, std::fabs(wanted));
    }
  });
  return close;
}

}  // namespace hvd::test
