#include <cfenv>

#include "base/float_mode.h"

namespace hvd {

// What the language knows of a mode is its rounding.
FloatMode::FloatMode() noexcept : before_(static_cast<uint64_t>(std::fegetround())) {
  if (before_ != FE_TONEAREST) std::fesetround(FE_TONEAREST);
}

FloatMode::~FloatMode() {
  if (before_ != FE_TONEAREST) std::fesetround(static_cast<int>(before_));
}

}  // namespace hvd
