// How long a driver looks for work before it sleeps.

#include "runtime/progress/waiting.h"

#include "check.h"

namespace hvd::test {
namespace {

constexpr int64_t kMost = 100;
constexpr int kProbed = 32;  // every so many waits the longest time is tried again

// So many waits in which nothing comes. How often the longest time was tried.
int Miss(SpinLimit* limit, int waits) {
  int longest = 0;
  for (int i = 0; i < waits; ++i) {
    if (limit->Begin() == kMost) ++longest;
    limit->Missed();
  }
  return longest;
}

TEST(SpinLimit, ShrinksWhenNothingCameAndGrowsWhenSomethingDid) {
  SpinLimit limit(kMost);
  Miss(&limit, kProbed + 8);
  EXPECT_TRUE(limit.Begin() > 0);
  EXPECT_TRUE(limit.Begin() < 10);
  limit.Found(30);
  EXPECT_TRUE(limit.Begin() >= 60);
  limit.Found(80);
  EXPECT_EQ(limit.Begin(), kMost);
}

// A peer on the same core that computes keeps it: who yields would come back after milliseconds.
TEST(SpinLimit, OnSharedCoresNobodyYieldsToPeersThatCompute) {
  SpinLimit limit(kMost, /*yields=*/true);
  Miss(&limit, kProbed + 8);
  EXPECT_EQ(limit.Begin(), 0);
  EXPECT_EQ(Miss(&limit, 10 * kProbed), 10);
  for (int i = 0; i < 2 * kProbed; ++i) {
    if (limit.Begin() > 0) limit.Found(3000);  // it came while a peer had the core
  }
  EXPECT_EQ(limit.Begin(), 0);
}

TEST(SpinLimit, OnSharedCoresPeersThatAnswerAreNoticed) {
  SpinLimit limit(kMost, /*yields=*/true);
  Miss(&limit, kProbed + 8);
  for (int i = 0; i < kProbed; ++i) {
    if (limit.Begin() > 0) limit.Found(20);
  }
  EXPECT_TRUE(limit.Begin() >= 40);
}

TEST(SpinWait, SleepsAfterTheTimeAndThenAtOnce) {
  for (const bool yields : {false, true}) {
    SpinLimit limit(kMost, yields);
    SpinWait wait(&limit);
    EXPECT_TRUE(wait.Spin(1000));
    EXPECT_TRUE(wait.Spin(1000 + kMost - 1));
    EXPECT_FALSE(wait.Spin(1000 + kMost));
    EXPECT_FALSE(wait.Spin(1001 + kMost));
    wait.Found(1200 + kMost);
    EXPECT_TRUE(wait.Spin(2000));
  }
}

}  // namespace
}  // namespace hvd::test
