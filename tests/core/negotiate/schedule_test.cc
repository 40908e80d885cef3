#include "negotiate/schedule.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "negotiate/epoch.h"
#include "negotiate/schedule_review.h"

namespace hvd::negotiate {
namespace {

Decision Known(uint32_t id, uint64_t ordinal = 0, std::vector<int64_t> sizes = {}) {
  Decision decision;
  decision.id = id;
  decision.known = true;
  decision.ordinal = ordinal;
  decision.sizes = std::move(sizes);
  return decision;
}

Response Batch(const std::vector<uint32_t>& ids) {
  Response response;
  for (const uint32_t id : ids) response.decisions.push_back(Known(id));
  return response;
}

// How often a step is noted before it makes a schedule; 0: more than `most` times.
size_t Repeats(ScheduleLearner* learner, const std::vector<Response>& step, size_t most = 200) {
  for (size_t n = 1; n <= most; ++n) {
    for (size_t i = 0; i < step.size(); ++i) {
      if (!learner->Note(step[i], i + 1 == step.size()).empty()) return n;
    }
  }
  return 0;
}

TEST(Schedule, IsMadeOfAStepThatRepeats) {
  ScheduleLearner learner({});
  EXPECT_EQ(Repeats(&learner, {Batch({0, 1}), Batch({2})}), size_t{3});
}

TEST(Schedule, TakesTheBatchesOfTheLatestStep) {
  ScheduleLearner learner({});
  EXPECT_TRUE(learner.Note(Batch({0, 1, 2}), true).empty());
  EXPECT_TRUE(learner.Note(Batch({2, 0}), false).empty());
  EXPECT_TRUE(learner.Note(Batch({1}), true).empty());
  EXPECT_TRUE(learner.Note(Batch({1}), false).empty());
  const Schedule schedule = learner.Note(Batch({2, 0}), true);
  ASSERT_EQ(schedule.batches.size(), size_t{2});
  EXPECT_EQ(schedule.batches[0][0].id, 1u);
  EXPECT_EQ(schedule.batches[1][0].id, 2u);
}

TEST(Schedule, HoldsStepsThatAlternate) {
  ScheduleLearner learner({});
  size_t noted = 0;
  Schedule schedule;
  while (schedule.empty() && noted < 100) {
    schedule = learner.Note(Batch({noted++ % 3 == 2 ? 5u : 4u}), true);
  }
  EXPECT_EQ(noted, size_t{9});
  ASSERT_EQ(schedule.batches.size(), size_t{3});
}

TEST(Schedule, HasNothingThatFailsOrIsNewOrLacksAMember) {
  const auto never = [](const Decision& decision) {
    ScheduleLearner learner({});
    Response response;
    response.decisions = {Known(1), decision};
    EXPECT_EQ(Repeats(&learner, {response}), size_t{0});
    EXPECT_EQ(Repeats(&learner, {Batch({1})}), size_t{3});
  };
  Decision odd = Known(2);
  odd.known = false;
  never(odd);
  odd = Known(2);
  odd.partial = true;
  never(odd);
  odd = Known(2);
  odd.error = "the ranks disagree";
  never(odd);
}

TEST(Schedule, HoldsAsManyStepsAsMayAlternate) {
  ScheduleLearner learner({});
  const std::vector<Response> steps = {Batch({4}), Batch({5, 6}), Batch({4}), Batch({7})};
  for (size_t noted = 0; noted + 1 < 3 * steps.size(); ++noted)
    EXPECT_TRUE(learner.Note(steps[noted % steps.size()], true).empty());
  const Schedule schedule = learner.Note(steps.back(), true);
  ASSERT_EQ(schedule.batches.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(schedule.batches[i].size(), steps[i].decisions.size());
    EXPECT_EQ(schedule.batches[i][0].id, steps[i].decisions[0].id);
  }
}

// A loop that waits for a gradient and then for each of its metrics.
TEST(Schedule, HoldsManySmallStepsThatAlternate) {
  for (const uint32_t steps : {2u, 7u, 64u, 65u}) {
    ScheduleLearner learner({});
    size_t noted = 0;
    Schedule schedule;
    for (; schedule.empty() && noted < 6 * steps; ++noted)
      schedule = learner.Note(Batch({static_cast<uint32_t>(noted) % steps}), true);
    EXPECT_EQ(schedule.batches.size(), steps <= 64 ? size_t{steps} : size_t{0});
    if (steps <= 64) EXPECT_EQ(noted, size_t{3 * steps});
  }
}

// What is kept of steps stays small: of many that alternate, those that have few operations.
TEST(Schedule, HoldsFewStepsOfManyOperations) {
  const auto holds = [](size_t steps, uint32_t operations) {
    ScheduleLearner learner({});
    for (size_t noted = 0; noted < 6 * steps; ++noted) {
      Response response;
      for (uint32_t id = 0; id < operations; ++id)
        response.decisions.push_back(Known(static_cast<uint32_t>(noted % steps) * 10'000 + id));
      if (!learner.Note(response, true).empty()) return true;
    }
    return false;
  };
  EXPECT_TRUE(holds(4, 5000));
  EXPECT_TRUE(holds(5, 400));
  EXPECT_FALSE(holds(5, 5000));
}

// A group of allgathers brings a number for each tensor and member.
TEST(Schedule, HasNoMoreSizesThanAMessageHolds) {
  const auto repeats = [](size_t groups, size_t members) {
    ScheduleLearner learner({});
    Response response;
    response.decisions.assign(groups, Known(1, 0, std::vector<int64_t>(1024 * members, 7)));
    return Repeats(&learner, {response, Batch({2})}, 5);
  };
  EXPECT_EQ(repeats(1, 1024), size_t{3});
  EXPECT_EQ(repeats(2, 1024), size_t{0});
}

TEST(Schedule, ForgetsASteplessProgram) {
  LearningOptions options;
  options.most_sizes = 10;
  ScheduleLearner learner(options);
  Response response;
  response.decisions = {Known(1, 0, {1, 2, 3})};
  for (int n = 0; n < 100; ++n) EXPECT_TRUE(learner.Note(response, false).empty());
  EXPECT_TRUE(learner.Note(response, true).empty());
  EXPECT_EQ(Repeats(&learner, {response}), size_t{3});
}

TEST(Schedule, NeedsEqualSizes) {
  ScheduleLearner learner({});
  Response response;
  for (int64_t n = 0; n < 50; ++n) {
    response.decisions = {Known(1, 0, {n, 2})};
    EXPECT_TRUE(learner.Note(response, true).empty());
  }
  response.decisions = {Known(1, 0, {7, 2})};
  EXPECT_EQ(Repeats(&learner, {response}), size_t{3});
}

TEST(Schedule, IsTrustedLessAfterItServedShortly) {
  ScheduleLearner learner({});
  const std::vector<Response> step = {Batch({0}), Batch({1})};
  EXPECT_EQ(Repeats(&learner, step), size_t{3});
  learner.Left(5);
  EXPECT_EQ(Repeats(&learner, step), size_t{6});
  learner.Left(5);
  EXPECT_EQ(Repeats(&learner, step), size_t{12});
  learner.Left(1000);
  EXPECT_EQ(Repeats(&learner, step), size_t{3});
  for (int i = 0; i < 20; ++i) learner.Left(0);
  EXPECT_EQ(Repeats(&learner, step), size_t{96});
}

TEST(Schedule, CanBeSwitchedOff) {
  LearningOptions off;
  off.repeats = 0;
  ScheduleLearner learner(off);
  EXPECT_EQ(Repeats(&learner, {Batch({0})}), size_t{0});
}

// The place that the next operation of this id takes; nothing when there is none.
std::optional<size_t> Fill(Epoch<uint32_t>* epoch, uint32_t id, bool unnamed = false) {
  const auto place = epoch->Next(id, unnamed);
  if (place) epoch->Fill(*place, id);
  return place;
}

// The ids of what runs.
std::vector<uint32_t> Pass(Epoch<uint32_t>* epoch) {
  std::vector<uint32_t> ids;
  epoch->Pass([&](const Slot& slot, uint32_t operation) {
    EXPECT_EQ(slot.id, operation);
    ids.push_back(operation);
  });
  return ids;
}

Schedule Of(const std::vector<std::vector<Slot>>& batches) {
  Schedule schedule;
  schedule.batches = batches;
  return schedule;
}

TEST(Epoch, IsReadyWhenAllOfTheNextBatchIsSubmitted) {
  Epoch<uint32_t> epoch(Of({{{0}, {1}}, {{2}}}), 4);
  EXPECT_FALSE(epoch.Ready());
  EXPECT_EQ(*Fill(&epoch, 2, false), size_t{2});
  EXPECT_EQ(*Fill(&epoch, 1, false), size_t{1});
  EXPECT_FALSE(epoch.Ready());
  EXPECT_EQ(*Fill(&epoch, 0, false), size_t{0});
  EXPECT_EQ(epoch.complete(), 2u);
  EXPECT_TRUE(Pass(&epoch) == std::vector<uint32_t>({0, 1}));
  EXPECT_TRUE(epoch.Ready());
  EXPECT_EQ(epoch.next_batch(), size_t{1});
  EXPECT_TRUE(Pass(&epoch) == std::vector<uint32_t>({2}));
  EXPECT_FALSE(epoch.Ready());
  EXPECT_EQ(epoch.passed(), 2u);
}

TEST(Epoch, HasNoPlaceForOthers) {
  Epoch<uint32_t> epoch(Of({{{0}, {1, true}}}), 4);
  EXPECT_FALSE(Fill(&epoch, 2, false));
  EXPECT_FALSE(Fill(&epoch, 9, false));
  EXPECT_FALSE(Fill(&epoch, 1, false));
  EXPECT_FALSE(Fill(&epoch, 0, true));
  EXPECT_TRUE(Fill(&epoch, 1, true));
}

TEST(Epoch, KeepsTheOrderOfUnnamedOperations) {
  Epoch<uint32_t> epoch(Of({{{0, true}, {1, true}}, {{0, true}}}), 2);
  EXPECT_FALSE(Fill(&epoch, 1, true));
  for (const size_t place : {0, 1, 2, 0, 1, 2}) {  // also beyond the next step
    const auto filled = Fill(&epoch, place == 1 ? 1 : 0, true);
    ASSERT_TRUE(filled);
    EXPECT_EQ(*filled, place);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(epoch.Ready());
    (void)Pass(&epoch);
  }
  EXPECT_EQ(epoch.unnamed(), 6u);
  EXPECT_FALSE(epoch.Ready());
}

TEST(Epoch, GivesANameThatComesSeveralTimesItsPlacesInTurn) {
  Epoch<uint32_t> epoch(Of({{{0}}, {{1}}, {{0}}, {{2}}}), 3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(*Fill(&epoch, 0, false), size_t{0});
    (void)Pass(&epoch);
    EXPECT_EQ(*Fill(&epoch, 1, false), size_t{1});
    (void)Pass(&epoch);
    EXPECT_EQ(*Fill(&epoch, 0, false), size_t{2});
    (void)Pass(&epoch);
    EXPECT_EQ(*Fill(&epoch, 2, false), size_t{3});
    (void)Pass(&epoch);
  }
}

// Random schedules, filled in random order as far ahead as names allow, against counts by hand.
TEST(Epoch, PassesWhatIsSubmittedWhateverTheOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const uint32_t ids = 1 + random() % 12;
    std::vector<uint32_t> order(ids);
    for (uint32_t id = 0; id < ids; ++id) order[id] = id;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<Slot>> batches;
    for (const uint32_t id : order) {
      if (batches.empty() || random() % 2 == 0) batches.emplace_back();
      batches.back().push_back({id});
    }
    Epoch<uint32_t> epoch(Of(batches), ids);
    std::vector<bool> pending(ids, false);
    size_t next = 0;
    for (int i = 0; i < 300; ++i) {
      const uint32_t id = random() % ids;
      if (!pending[id]) {
        ASSERT_TRUE(Fill(&epoch, id, false));
        pending[id] = true;
      }
      const std::vector<Slot>& batch = batches[next];
      const bool ready = std::all_of(batch.begin(), batch.end(),
                                     [&](const Slot& slot) { return pending[slot.id]; });
      ASSERT_EQ(epoch.Ready(), ready);
      if (!ready) continue;
      for (const Slot& slot : batch) pending[slot.id] = false;
      (void)Pass(&epoch);
      next = (next + 1) % batches.size();
    }
  }
}

// Steps until the root would learn again, at most so many. `ready`: by batch, whether the root had
// submitted the next one when it ran.
int StepsUntilDue(ScheduleReview* review, const std::vector<bool>& ready, int most = 10'000) {
  for (int step = 0; step < most; ++step) {
    if (review->due()) return step;
    for (const bool next : ready) review->Passed(next);
  }
  return most;
}

TEST(ScheduleReview, LearnsAgainWhenBatchesAreCompleteSeveralAtATime) {
  ScheduleReview review;
  review.Begin({10, 10, 10, 10}, 1000);
  EXPECT_TRUE(StepsUntilDue(&review, {true, true, true, false}) < 100);
}

TEST(ScheduleReview, KeepsBatchesThatComeOneAfterAnother) {
  ScheduleReview review;
  review.Begin({10, 10, 10, 10}, 1000);
  EXPECT_EQ(StepsUntilDue(&review, {false, false, false, true}), 10'000);
}

TEST(ScheduleReview, KeepsBatchesThatTogetherWouldBeTooLarge) {
  ScheduleReview review;
  review.Begin({600, 600, 600, 10}, 1000);
  EXPECT_EQ(StepsUntilDue(&review, {true, true, false, true}), 10'000);
}

// Other members may be slower than the root.
TEST(ScheduleReview, TriesLessAndLessOftenWhileNothingIsGained) {
  ScheduleReview review;
  int before = 0;
  for (int tries = 0; tries < 5; ++tries) {
    review.Begin({10, 10, 10, 10}, 1000);
    const int steps = StepsUntilDue(&review, {true, true, true, false});
    EXPECT_TRUE(steps > before);
    before = steps;
  }
  review.Begin({40}, 1000);
  EXPECT_EQ(StepsUntilDue(&review, {true}), 10'000);
  review.Begin({10, 10}, 1000);
  EXPECT_TRUE(StepsUntilDue(&review, {true, false}) < before);
}

}  // namespace
}  // namespace hvd::negotiate
