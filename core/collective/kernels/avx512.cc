#include <immintrin.h>

#include "collective/kernels/loops.h"

namespace hvd::kernels {

namespace {

struct Avx512 {
  using Floats = __m512;
  using Words [[gnu::vector_size(64)]] = uint32_t;
  using Packed = __m256i;
  static constexpr int64_t kWidth = 16;

  HVD_INLINE static Packed Load(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at));
  }
  HVD_INLINE static void Store(std::byte* at, Packed packed) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(at), packed);
  }

  HVD_INLINE static Floats FromHalf(Packed packed) { return _mm512_cvtph_ps(packed); }
  HVD_INLINE static Packed ToHalf(Floats value) {
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  }

  HVD_INLINE static Words Widen(Packed packed) {
    return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(packed));
  }
  HVD_INLINE static Packed Narrow(Words words) {
    return _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(words));
  }
};

}  // namespace

extern const Table kAvx512Table = {"avx512",
                                   HVD_KERNEL_ROWS(HalfPackLane<Avx512>, BfloatPackLane<Avx512>)};

}  // namespace hvd::kernels
