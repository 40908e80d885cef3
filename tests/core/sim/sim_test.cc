// A few of the jobs that "make sim" simulates, and what such a job must have reached to mean
// anything.

#include "check.h"
#include "sim/job.h"

namespace hvd::sim {
namespace {

TEST(Simulation, NoRuleIsBroken) {
  Outcome sum;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Outcome outcome = RunSeed(seed, 16);
    EXPECT_EQ(outcome.violation, "");
    sum.gates += outcome.gates;
    sum.schedules_left += outcome.schedules_left;
    sum.collectives += outcome.collectives;
  }
  EXPECT_TRUE(sum.collectives > 10'000);
  EXPECT_TRUE(sum.gates > 10'000);
  EXPECT_TRUE(sum.schedules_left > 1000);
}

TEST(Simulation, NoRuleIsBrokenByManyRanks) {
  for (uint64_t seed = 0; seed < 3; ++seed) EXPECT_EQ(RunSeed(seed, 300).violation, "");
}

TEST(Simulation, AllFollowsFromTheSeed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Outcome first = RunSeed(seed, 16);
    const Outcome again = RunSeed(seed, 16);
    EXPECT_EQ(first.events, again.events);
    EXPECT_EQ(first.time, again.time);
  }
}

}  // namespace
}  // namespace hvd::sim
