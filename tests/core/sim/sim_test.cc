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

// Over links, a last word gets through ranks whose programs compute, and their engines sleep until
// a next heartbeat.
TEST(Simulation, AReportNamesWhoHangsThoughOthersLeaveTheSchedule) {
  Shape shape;
  shape.ranks_per_host = 1;
  uint64_t left = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    shape.ranks = 4 + static_cast<int>(random.Below(9));
    const auto draw = [&] {
      return static_cast<int>(random.Below(static_cast<uint64_t>(shape.ranks)));
    };
    Plan plan;
    plan.sets.resize(1);
    for (int rank = 0; rank < shape.ranks; ++rank) plan.sets[0].members.push_back(rank);
    plan.ops = {{0, OpKind::kAllreduce, ReduceOp::kSum, "w", 2, 0}};
    plan.steps.assign(8, {{0}});
    plan.steps.resize(10, {{0, draw()}});
    plan.joins_at.assign(static_cast<size_t>(shape.ranks), plan.steps.size());
    plan.ending = Ending::kHang;
    plan.victim = draw();
    plan.ends_at = 8;
    const Outcome outcome = RunJob(shape, std::move(plan), random.Next());
    EXPECT_EQ(outcome.violation, "");
    left += outcome.schedules_left;
  }
  EXPECT_TRUE(left > 300);
}

// Others have told the root more than one message while its program computes.
TEST(Simulation, AReportKnowsAllThatAnIdleRootWasTold) {
  EXPECT_EQ(RunSeed(208843, 16).violation, "");
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

TEST(Simulation, TheFirstStepCostsTheSameWhenItIsTheOnlyOne) {
  for (const int ranks : {8, 40, 200}) {
    const double among_others = MeasureScale(ranks, 30, kTcp).cold.micros;
    EXPECT_EQ(MeasureFirstStep(ranks, 30, kTcp).micros, among_others);
  }
}

}  // namespace
}  // namespace hvd::sim
