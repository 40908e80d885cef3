#include "base/float_mode.h"

#include <cfenv>

#include "check.h"

namespace hvd::test {
namespace {

TEST(FloatMode, IsTheUsualOneInsideAndThatOfTheThreadAfterwards) {
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    {
      const FloatMode usual;
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      const FloatMode again;
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
    EXPECT_EQ(std::fegetround(), mode);
  }
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace hvd::test
