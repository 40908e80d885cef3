#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/float8.h"
#include "base/half.h"

// How elements get from memory into the type they are computed in, and back. A lane handles kWidth
// elements at a time: 1 where the compiler vectorises the loop around it, a register where it
// cannot.
namespace hvd::kernels {
namespace {

// Memory of any alignment that may alias anything.
template <typename T>
struct [[gnu::packed, gnu::may_alias]] Loose {
  T value;
};

template <typename T>
HVD_INLINE T Peek(const std::byte* at, int64_t i) {
  return reinterpret_cast<const Loose<T>*>(at)[i].value;
}

template <typename T>
HVD_INLINE void Poke(std::byte* at, int64_t i, T value) {
  reinterpret_cast<Loose<T>*>(at)[i].value = value;
}

template <typename T>
struct NumberLane {
  using Compute = T;
  using Value = T;
  static constexpr int64_t kWidth = 1;
  static constexpr int64_t kBytes = sizeof(T);
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) { return Peek<T>(at, i); }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) { Poke<T>(at, i, value); }
};

// Any byte but 0 is true, and true is stored as 1.
struct BoolLane : NumberLane<uint8_t> {
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) { return Peek<uint8_t>(at, i) != 0; }
};

template <typename Raw>
HVD_INLINE Raw FromFloat(float value) {
  if constexpr (std::is_same_v<Raw, Float16>) {
    return ToFloat16(value);
  } else if constexpr (std::is_same_v<Raw, Bfloat16>) {
    return ToBfloat16(value);
  } else if constexpr (std::is_same_v<Raw, Float8E4m3fn>) {
    return ToFloat8E4m3fn(value);
  } else {
    return ToFloat8E5m2(value);
  }
}

template <typename Raw>
struct SmallFloatLane {
  using Compute = float;
  using Value = float;
  using Bits = decltype(Raw::bits);
  static constexpr int64_t kWidth = 1;
  static constexpr int64_t kBytes = sizeof(Raw);
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return ToFloat(Raw{Peek<Bits>(at, i)});
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    Poke<Bits>(at, i, FromFloat<Raw>(value).bits);
  }
};
using HalfLane = SmallFloatLane<Float16>;
using BfloatLane = SmallFloatLane<Bfloat16>;
using Float8E4m3fnLane = SmallFloatLane<Float8E4m3fn>;
using Float8E5m2Lane = SmallFloatLane<Float8E5m2>;

// Registers of float16 or bfloat16, converted by instructions that compilers do not find by
// themselves. The file of an instruction set describes them as a `Set`:
// - Floats and Words are registers of kWidth floats and of kWidth words of 32 bits, Packed is one
// of kWidth
//   elements; Load and Store move it from and to memory of any alignment;
// - FromHalf and ToHalf convert float16; Widen and Narrow convert words whose upper halves are 0.
template <typename Set>
struct PackLane {
  using Compute = float;
  using Value = typename Set::Floats;
  static constexpr int64_t kWidth = Set::kWidth;
  static constexpr int64_t kBytes = 2;  // of one element
};

template <typename Set>
struct HalfPackLane : PackLane<Set> {
  using Value = typename Set::Floats;
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return Set::FromHalf(Set::Load(at + 2 * i));
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    Set::Store(at + 2 * i, Set::ToHalf(value));
  }
};

// Rounds as ToBfloat16 does.
template <typename Set>
struct BfloatPackLane : PackLane<Set> {
  using Value = typename Set::Floats;
  using Words = typename Set::Words;
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return reinterpret_cast<Value>(Set::Widen(Set::Load(at + 2 * i)) << 16);
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    const Words bits = reinterpret_cast<Words>(value);
    const Words high = bits >> 16;
    const Words rounded = (bits + (high & 1) + 0x7fff) >> 16;
    const Words result = value != value ? high | 0x40 : rounded;
    Set::Store(at + 2 * i, Set::Narrow(result));
  }
};

// The scratch of a block, in the compute type.
template <typename Lane>
HVD_INLINE typename Lane::Value Get(const typename Lane::Compute* block, int64_t i) {
  if constexpr (Lane::kWidth == 1) return block[i];
  typename Lane::Value value;
  std::memcpy(&value, block + i, sizeof value);
  return value;
}

template <typename Lane>
HVD_INLINE void Put(typename Lane::Compute* block, int64_t i, typename Lane::Value value) {
  if constexpr (Lane::kWidth == 1) {
    block[i] = value;
  } else {
    std::memcpy(block + i, &value, sizeof value);
  }
}

}  // namespace
}  // namespace hvd::kernels
