#include <xmmintrin.h>

#include "base/float_mode.h"

namespace hvd {

namespace {

constexpr uint32_t kNoted = 0x3F;    // which exceptions have come up: no part of the mode
constexpr uint32_t kUsual = 0x1F80;  // all of them masked, and nothing else

// To write the register costs more than to read it.
bool IsUsual(uint64_t mode) { return (mode & ~uint64_t{kNoted}) == kUsual; }

}  // namespace

FloatMode::FloatMode() noexcept : before_(_mm_getcsr()) {
  if (!IsUsual(before_)) _mm_setcsr(kUsual);
}

FloatMode::~FloatMode() {
  if (!IsUsual(before_)) _mm_setcsr(static_cast<uint32_t>(before_));
}

}  // namespace hvd
