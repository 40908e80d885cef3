#include "set_simulator.h"

#include <cstdlib>

#include "check.h"

namespace hvd::negotiate {
namespace {

// HVD_TEST_FULL asks for many.
uint64_t Seeds() { return std::getenv("HVD_TEST_FULL") != nullptr ? 10000 : 1000; }

bool Holds(uint64_t seed, const SetOutcome& outcome) {
  if (outcome.violations.empty()) return true;
  check::Fail(__FILE__, __LINE__,
              "seed " + std::to_string(seed) + ", " + std::to_string(outcome.violations.size()) +
                  " violations, first: " + outcome.violations[0]);
  return false;
}

// Operations of all kinds with uneven counts per rank, on overlapping sets that come and go, and
// joins.
TEST(SetSimulator, RandomPrograms) {
  SetOutcome sum;
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    const SetOutcome outcome = SimulateSets(RandomSetProgram(seed));
    if (!Holds(seed, outcome)) return;
    sum.decisions += outcome.decisions;
    sum.partial += outcome.partial;
    sum.errors += outcome.errors;
    sum.joins += outcome.joins;
    sum.removed += outcome.removed;
  }
  // The programs are what they promise to be.
  const auto seeds = static_cast<int64_t>(Seeds());
  EXPECT_TRUE(sum.decisions > 20 * seeds);
  EXPECT_TRUE(sum.partial > sum.decisions / 5 && sum.partial < sum.decisions * 4 / 5);
  EXPECT_TRUE(sum.errors > seeds / 2 && sum.errors < sum.decisions / 4);
  EXPECT_TRUE(sum.joins > 3 * seeds);
  EXPECT_TRUE(sum.removed > seeds / 2);
}

TEST(SetSimulator, EqualSeedsEqualTraces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const uint64_t trace = SimulateSets(RandomSetProgram(seed)).trace;
    EXPECT_EQ(trace, SimulateSets(RandomSetProgram(seed)).trace);
    EXPECT_TRUE(trace != SimulateSets(RandomSetProgram(seed + 1000)).trace);
  }
}

}  // namespace
}  // namespace hvd::negotiate
