#include "simulator.h"

#include <algorithm>

#include "check.h"
#include "random.h"

namespace hvd::negotiate {
namespace {

int64_t Operations(const Scenario& scenario) {
  return int64_t{scenario.steps} * (scenario.named + scenario.unnamed);
}

void ExpectNoViolation(const Scenario& scenario, const Outcome& outcome) {
  if (outcome.violations.empty()) return;
  check::Fail(__FILE__, __LINE__,
              "seed " + std::to_string(scenario.seed) + ", " +
                  std::to_string(outcome.violations.size()) +
                  " violations, first: " + outcome.violations[0]);
}

// Nobody dies: every operation of every step is decided once and everything is cached after the
// first step.
void ExpectComplete(const Scenario& scenario) {
  const Outcome outcome = Simulate(scenario);
  ExpectNoViolation(scenario, outcome);
  EXPECT_EQ(outcome.finished, scenario.ranks);
  EXPECT_EQ(outcome.decisions, Operations(scenario));
  EXPECT_EQ(outcome.errors.size(), static_cast<size_t>(scenario.mismatches));
  EXPECT_TRUE(outcome.pending.empty());
  EXPECT_TRUE(outcome.responses < outcome.decisions);  // batches form
  for (size_t step = 1; step < outcome.full.size() && scenario.options.cache_capacity > 0; ++step) {
    EXPECT_EQ(outcome.full[step], step == 1 ? scenario.mismatches : 0);
  }
}

Scenario Small(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = 2 + static_cast<int>(random.Below(15));
  scenario.steps = 3 + static_cast<int>(random.Below(3));
  scenario.named = 5 + static_cast<int>(random.Below(40));
  scenario.unnamed = 3 + static_cast<int>(random.Below(9));
  scenario.max_delay = static_cast<Micros>(random.Below(3000));
  scenario.options.batch_bytes =
      random.OneIn(2) ? 8 << 20 : 1 + static_cast<int64_t>(random.Below(20000));
  return scenario;
}

// On hosts of unequal size, whose ranks are mixed on every other seed.
Scenario OnHosts(uint64_t seed) {
  Scenario scenario = Small(seed);
  Random random(~seed);
  const uint64_t hosts = 2 + random.Below(7);
  for (int rank = 0; rank < scenario.ranks; ++rank)
    scenario.hosts.push_back(static_cast<int>(random.Below(hosts)));
  if (seed % 2 == 0) std::sort(scenario.hosts.begin(), scenario.hosts.end());
  return scenario;
}

TEST(Simulator, SmallTrees) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Scenario scenario = OnHosts(seed);
    if (seed % 10 == 0 || seed % 7 == 0) scenario.options.cache_capacity = 0;
    scenario.mismatches = static_cast<int>(seed % 5);
    ExpectComplete(scenario);
  }
}

TEST(Simulator, SmallJobs) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Scenario scenario = Small(seed);
    if (seed % 10 == 0) scenario.options.cache_capacity = 0;
    ExpectComplete(scenario);
  }
}

TEST(Simulator, SmallCacheOverflows) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = Small(seed);
    scenario.options.cache_capacity = 4;
    const Outcome outcome = Simulate(scenario);
    ExpectNoViolation(scenario, outcome);
    EXPECT_EQ(outcome.finished, scenario.ranks);
    EXPECT_EQ(outcome.decisions, Operations(scenario));
    EXPECT_TRUE(outcome.full.back() > 0 && outcome.full.back() < outcome.full.front());
  }
}

TEST(Simulator, MismatchesFailAloneAndEverywhereAlike) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Scenario scenario = Small(seed);
    scenario.mismatches = 1 + static_cast<int>(seed % 5);
    ExpectComplete(scenario);
    const Outcome outcome = Simulate(scenario);
    for (const std::string& error : outcome.errors) {
      EXPECT_EQ(error.substr(0, 40), "Mismatched number of tensors for group '");
    }
  }
}

// A decision without the dead rank would hang or corrupt the others: there is none, and the stall
// is named.
TEST(Simulator, DeathLeavesItsOperationsPending) {
  int deaths = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Scenario scenario = seed <= 100 ? Small(seed) : OnHosts(seed);
    scenario.named += 20;
    // A node tells of so many.
    if (!scenario.hosts.empty())
      scenario.named = std::min(scenario.named, static_cast<int>(kMaxWaiting) - scenario.unnamed);
    scenario.victim = static_cast<int>(seed) % scenario.ranks;
    const Outcome outcome = Simulate(scenario);
    ExpectNoViolation(scenario, outcome);
    if (!outcome.died) continue;
    ++deaths;
    EXPECT_EQ(outcome.finished, 0);
    std::set<std::string> pending;
    for (const Unready& unready : outcome.pending) {
      pending.insert(unready.name);
      EXPECT_TRUE(unready.absent == Members{scenario.victim}.ranks());
      EXPECT_EQ(unready.ready.size(), static_cast<size_t>(scenario.ranks - 1));
    }
    EXPECT_FALSE(pending.empty());
    EXPECT_TRUE(pending == outcome.orphaned);
    EXPECT_EQ(outcome.decisions + static_cast<int64_t>(pending.size()), Operations(scenario));
  }
  EXPECT_TRUE(deaths > 50);
}

TEST(Simulator, EqualSeedsEqualTraces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Simulate(Small(seed)).trace, Simulate(Small(seed)).trace);
    Scenario other = Small(seed);
    other.seed += 1000;
    EXPECT_TRUE(Simulate(Small(seed)).trace != Simulate(other).trace);
  }
}

TEST(Simulator, ThousandRanks) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.ranks = 1000;
    scenario.steps = 3;
    scenario.named = 30;
    scenario.unnamed = 6;
    scenario.mismatches = seed == 2 ? 3 : 0;
    ExpectComplete(scenario);
  }
}

}  // namespace
}  // namespace hvd::negotiate
