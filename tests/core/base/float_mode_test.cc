#include "base/float_mode.h"

#include <cfenv>

#include "check.h"

namespace hvd::test {
namespace {

// What this thread's arithmetic does, not what fegetround() says: on x86 that reads the mode of the
// x87, which computes nothing here.
int Rounding() {
  volatile float one = 1.0f, tiny = 1e-20f;
  if (one + tiny > 1.0f) return FE_UPWARD;
  return -one + tiny > -1.0f ? FE_TOWARDZERO : FE_TONEAREST;
}

TEST(FloatMode, IsTheUsualOneInsideAndThatOfTheThreadAfterwards) {
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    {
      const FloatMode usual;
      EXPECT_EQ(Rounding(), FE_TONEAREST);
      const FloatMode again;
      EXPECT_EQ(Rounding(), FE_TONEAREST);
    }
    EXPECT_EQ(Rounding(), mode);
  }
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace hvd::test
