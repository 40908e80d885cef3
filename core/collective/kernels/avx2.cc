#include <immintrin.h>

#include "collective/kernels/loops.h"

namespace hvd::kernels {

namespace {

struct Avx2 {
  using Floats = __m256;
  using Words [[gnu::vector_size(32)]] = uint32_t;
  using Packed = __m128i;
  static constexpr int64_t kWidth = 8;

  HVD_INLINE static Packed Load(const std::byte* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at));
  }
  HVD_INLINE static void Store(std::byte* at, Packed packed) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at), packed);
  }

  HVD_INLINE static Floats FromHalf(Packed packed) { return _mm256_cvtph_ps(packed); }
  HVD_INLINE static Packed ToHalf(Floats value) {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  }

  HVD_INLINE static Words Widen(Packed packed) {
    return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(packed));
  }
  HVD_INLINE static Packed Narrow(Words words) {
    const auto all = reinterpret_cast<__m256i>(words);
    return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  }
};

}  // namespace

extern const Table kAvx2Table = {"avx2", HVD_KERNEL_ROWS(HalfPackLane<Avx2>, BfloatPackLane<Avx2>)};

}  // namespace hvd::kernels
