// A merger whose set follows a schedule: what it throws away when one begins, whom it tells of, and
// how it counts on. Whole trees are in following_test.cc.

#include "check.h"
#include "negotiate/merge/merger.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

// Position 0, and the node of positions 1 and 2.
struct Node {
  Node() : merger(Options()) {}
  static MergerOptions Options() {
    MergerOptions options;
    options.children = {{GlobalRank(0), {0}}, {GlobalRank(1), {1, 2}}};
    return options;
  }
  AnnounceMessage Take() {
    AnnounceMessage message;
    EXPECT_TRUE(merger.Take(&message));
    return message;
  }
  Status Say(size_t child, AnnounceMessage message, uint64_t epoch) {
    message.epoch = epoch;
    return merger.Announce(child, std::move(message), 0);
  }
  Status SayWaits(size_t child, uint64_t batch, Positions waiters, Micros now = 0) {
    AnnounceMessage message;
    message.epoch = 1;
    message.waits_for = batch;
    message.waiters = std::move(waiters);
    return merger.Announce(child, std::move(message), now);
  }
  Merger merger;
};

TEST(Following, ThrowsAwayWhatHasNotPassed) {
  Node node;
  AnnounceMessage joins;
  joins.joins = true;
  ASSERT_OK(node.Say(1, Message({Full(Barrier(), 1), Full(Allreduce("w"))}, 2), 0));
  ASSERT_OK(node.Say(0, std::move(joins), 0));
  EXPECT_FALSE(node.merger.idle());
  node.merger.Follow();
  EXPECT_TRUE(node.merger.idle());
  EXPECT_TRUE(node.merger.joined().empty());
  AnnounceMessage none;
  EXPECT_FALSE(node.merger.Take(&none));
  ASSERT_OK(node.Say(1, Message({Full(Allreduce("v"))}), 0));  // on its way when it began
  EXPECT_TRUE(node.merger.idle());
  EXPECT_FALSE(node.Say(1, Message({Full(Allreduce("v"))}), 2).ok());
}

TEST(Following, CountsUnnamedOperationsOn) {
  Node node;
  node.merger.Follow();
  node.merger.Resume(7);
  EXPECT_FALSE(node.Say(0, Message({Full(Barrier(), 1)}), 1).ok());
  ASSERT_OK(node.Say(0, Message({Full(Barrier(), 8)}), 1));
  ASSERT_OK(node.Say(1, Message({Full(Barrier(), 8)}), 1));
  const AnnounceMessage merged = node.Take();
  EXPECT_EQ(merged.epoch, 1u);
  EXPECT_EQ(merged.announcements[0].ordinal, 8u);
}

TEST(Following, TellsWhoWaitsAtTheLatestGate) {
  Node node;
  node.merger.Follow();
  ASSERT_OK(node.SayWaits(0, 4, {}, 10));
  AnnounceMessage told = node.Take();
  EXPECT_EQ(told.waits_for, 4u);
  EXPECT_EQ(told.epoch, 1u);
  EXPECT_TRUE(told.waiters == Positions{0});
  ASSERT_OK(node.SayWaits(1, 4, {2}, 20));
  EXPECT_TRUE(node.Take().waiters == (Positions{0, 2}));
  EXPECT_EQ(node.merger.waiters().since, 10);
  ASSERT_OK(node.SayWaits(1, 5, {1}, 30));
  ASSERT_OK(node.SayWaits(1, 4, {1, 2}, 40));
  told = node.Take();
  EXPECT_EQ(told.waits_for, 5u);
  EXPECT_TRUE(told.waiters == Positions{1});
  EXPECT_FALSE(node.merger.Take(&told));
  EXPECT_FALSE(node.SayWaits(0, 6, {0}).ok());
  EXPECT_FALSE(node.SayWaits(1, 6, {}).ok());
  EXPECT_FALSE(node.SayWaits(1, 6, {0, 1}).ok());
}

}  // namespace
}  // namespace hvd::negotiate
