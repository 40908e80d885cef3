#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/half.h"

// How elements get from memory into the type they are computed in, and back. A lane handles kWidth elements
// at a time: 1 where the compiler vectorises the loop around it, a register where it cannot.
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

struct BfloatLane {
  using Compute = float;
  using Value = float;
  static constexpr int64_t kWidth = 1;
  static constexpr int64_t kBytes = 2;
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return ToFloat(Bfloat16{Peek<uint16_t>(at, i)});
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    Poke<uint16_t>(at, i, ToBfloat16(value).bits);
  }
};

struct HalfLane {
  using Compute = float;
  using Value = float;
  static constexpr int64_t kWidth = 1;
  static constexpr int64_t kBytes = 2;
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return ToFloat(Float16{Peek<uint16_t>(at, i)});
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    Poke<uint16_t>(at, i, ToFloat16(value).bits);
  }
};

// The packs convert with instructions that compilers do not find by themselves.
#if defined(__AVX512F__)
struct FloatPack {
  using Compute = float;
  using Value = __m512;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kBytes = 2;
  HVD_INLINE static __m256i LoadBits(const std::byte* at, int64_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at + i * kBytes));
  }
  HVD_INLINE static void StoreBits(std::byte* at, int64_t i, __m256i bits) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(at + i * kBytes), bits);
  }
};

struct HalfPackLane : FloatPack {
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) { return _mm512_cvtph_ps(LoadBits(at, i)); }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    StoreBits(at, i, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct BfloatPackLane : FloatPack {
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadBits(at, i)), 16));
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
    StoreBits(at, i, _mm512_cvtepi32_epi16(result));
  }
};
#elif defined(__F16C__) && defined(__AVX2__)
struct FloatPack {
  using Compute = float;
  using Value = __m256;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kBytes = 2;
  HVD_INLINE static __m128i LoadBits(const std::byte* at, int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at + i * kBytes));
  }
  HVD_INLINE static void StoreBits(std::byte* at, int64_t i, __m128i bits) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at + i * kBytes), bits);
  }
};

struct HalfPackLane : FloatPack {
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) { return _mm256_cvtph_ps(LoadBits(at, i)); }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    StoreBits(at, i, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct BfloatPackLane : FloatPack {
  HVD_INLINE static Value Load(const std::byte* at, int64_t i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadBits(at, i)), 16));
  }
  HVD_INLINE static void Store(std::byte* at, int64_t i, Value value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i result = _mm256_blendv_epi8(rounded, quiet, nan);
    StoreBits(at, i, _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1)));
  }
};
#else
using HalfPackLane = HalfLane;
using BfloatPackLane = BfloatLane;
#endif

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
