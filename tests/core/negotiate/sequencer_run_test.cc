// A sequencer that hears runs of operations, and decides them as runs.

#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

constexpr uint32_t kNamed = 6;

SequencerOptions Options(int64_t batch_bytes, size_t repeats) {
  SequencerOptions options;
  options.batch_bytes = batch_bytes;
  options.learning.repeats = repeats;
  return options;
}

// Two members that know operations 0 to 5, each of 16 bytes.
struct Pair {
  explicit Pair(int64_t batch_bytes = 8 << 20, size_t repeats = 0)
      : desk(2, Options(batch_bytes, repeats)) {
    std::vector<Announcement> all;
    for (uint32_t id = 0; id < kNamed; ++id)
      all.push_back(Full(Allreduce("t" + std::to_string(id))));
    for (const int member : {0, 1}) EXPECT_TRUE(desk.Say(member, all).ok());
    (void)desk.Take();
  }
  // "0-2 4 |": as they are published.
  std::string Published() {
    std::string text;
    while (const auto response = desk.root.Next(1 << 30)) {
      for (const Decision& run : response->decisions) {
        text += std::to_string(run.id);
        if (run.count > 1) text += "-" + std::to_string(run.id + run.count - 1);
        text += run.known && run.name.empty() ? " " : "? ";
      }
      text += response->schedule.empty() ? "| " : "* ";
    }
    return text;
  }

  Desk desk;
};

TEST(SequencerRun, IsDecidedAsOne) {
  Pair pair;
  for (const int member : {0, 1}) ASSERT_OK(pair.desk.Say(member, {Run(0, 6)}, 12));
  EXPECT_EQ(pair.Published(), "0-5 | ");
  ASSERT_OK(pair.desk.Say(0, {Run(0, 6)}, 18));
  ASSERT_OK(pair.desk.Say(1, {Run(3, 3), Cached(0), Cached(2), Cached(1)}, 18));
  EXPECT_EQ(pair.Published(), "3-5 0 2 1 | ");
}

TEST(SequencerRun, IsCutWhereABatchIsFull) {
  Pair pair(32);
  for (const int member : {0, 1}) ASSERT_OK(pair.desk.Say(member, {Run(0, 5)}));
  EXPECT_EQ(pair.Published(), "0-1 | 2-3 | 4 | ");
}

TEST(SequencerRun, IsLearned) {
  Pair pair(8 << 20, 3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(step == 0 || pair.Published() == "0-5 | ");
    for (const int member : {0, 1}) ASSERT_OK(pair.desk.Say(member, {Run(0, 6)}));
  }
  const auto response = pair.desk.root.Next(1 << 30);
  ASSERT_TRUE(response.has_value());
  ASSERT_EQ(response->schedule.batches.size(), size_t{1});
  ASSERT_EQ(response->schedule.batches[0].size(), size_t{6});
  EXPECT_EQ(response->schedule.batches[0][5].id, 5u);
}

// Each then says that somebody has joined.
TEST(SequencerRun, OfWhatLacksAMemberIsDecidedOneByOne) {
  Pair pair;
  ASSERT_OK(pair.desk.Join(1));
  ASSERT_OK(pair.desk.Say(0, {Run(0, 3)}));
  const std::vector<Response> responses = pair.desk.Take();
  ASSERT_EQ(responses.size(), size_t{1});
  ASSERT_EQ(responses[0].decisions.size(), size_t{3});
  for (const Decision& decision : responses[0].decisions) EXPECT_TRUE(decision.partial);
}

TEST(SequencerRun, IsWaitedForOnce) {
  Pair pair;
  Micros now = 0;
  for (int step = 0; step < 20; ++step) {
    ASSERT_OK(pair.desk.Say(0, {Run(0, 3)}, 0, now += 500'000));
    ASSERT_OK(pair.desk.Say(1, {Run(0, 3)}, 0, now += 250'000));
    (void)pair.desk.Take(now + 10'000);
  }
  const std::string straggler = pair.desk.root.TakeStraggler(now);
  EXPECT_EQ(straggler.substr(0, 41), "rank 1 is late: p50 250.0 ms, 20 times, a");
  EXPECT_TRUE(straggler.find("'t0'") != std::string::npos);
}

}  // namespace
}  // namespace hvd::negotiate
