#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

// The end of a join, and whether it came in the last of these responses and in no other.
int EndOf(const std::vector<Response>& responses) {
  for (size_t i = 0; i + 1 < responses.size(); ++i) {
    if (responses[i].last_joined.known()) return -2;
  }
  return responses.empty() ? -1 : responses.back().last_joined.value();
}

TEST(Join, TheOthersGoOn) {
  Desk desk(3);
  ASSERT_OK(desk.Join(1));
  EXPECT_TRUE(desk.root.merger().joined().Has(Position(1)));
  EXPECT_FALSE(desk.root.merger().joined().Has(Position(0)));
  EXPECT_TRUE(desk.Take().empty());
  for (bool known : {false, true}) {
    ASSERT_OK(desk.Say(0, {Full(Allreduce("w"))}));
    EXPECT_TRUE(desk.Take().empty());
    ASSERT_OK(desk.Say(2, {Full(Allreduce("w"))}));
    const Decision decision = desk.TakeOne();
    EXPECT_EQ(decision.error, "");
    EXPECT_EQ(decision.known, known);
    EXPECT_TRUE(decision.partial);
    EXPECT_EQ(decision.request.has_value(), !known);
    if (decision.request) EXPECT_TRUE(decision.request->SameAs(Allreduce("w")));
  }
}

TEST(Join, MakesReadyWhatLacksOnlyTheJoined) {
  Desk desk(3);
  ASSERT_OK(desk.Say(1, {Full(Barrier(), 1), Full(Allreduce("b"))}, 0, 10));
  ASSERT_OK(desk.Say(0, {Full(Allreduce("late")), Full(Allreduce("b"))}, 0, 20));
  ASSERT_OK(desk.Say(0, {Full(Barrier(), 1)}, 0, 30));
  ASSERT_OK(desk.Join(2, {}, 40));
  const auto responses = desk.Take();
  ASSERT_EQ(responses.size(), size_t{1});
  EXPECT_EQ(responses[0].last_joined, GlobalRank());
  ASSERT_EQ(responses[0].decisions.size(), size_t{2});
  EXPECT_EQ(responses[0].decisions[0].ordinal, 1u);  // the oldest first
  EXPECT_EQ(responses[0].decisions[1].name, "b");
  EXPECT_TRUE(responses[0].decisions[0].partial && responses[0].decisions[1].partial);
  ASSERT_EQ(desk.root.Pending(100).size(), size_t{1});
  ASSERT_OK(desk.Join(1, {Full(Allreduce("late"))}, 50));
  const Decision whole = desk.TakeOne();
  EXPECT_EQ(whole.name, "late");
  EXPECT_TRUE(whole.partial);
}

TEST(Join, WhatItAnnouncedBeforeIsWhole) {
  Desk desk(2);
  ASSERT_OK(desk.Join(0, {Full(Allreduce("w"))}));
  EXPECT_TRUE(desk.Take().empty());
  ASSERT_OK(desk.Say(1, {Full(Allreduce("w"))}));
  const Decision decision = desk.TakeOne();
  EXPECT_FALSE(decision.partial);
  EXPECT_FALSE(decision.request.has_value());
}

TEST(Join, SizesOfTheJoinedAreZero) {
  Desk desk(3);
  ASSERT_OK(desk.Join(0));
  Request two = Allgather("g", {2, 8});
  two.tensors.push_back({DataType::kInt8, {5}});
  for (int member : {1, 2}) ASSERT_OK(desk.Say(member, {Full(two)}));
  EXPECT_TRUE(desk.TakeOne().sizes == (std::vector<int64_t>{0, 2, 2, 0, 5, 5}));
  for (int member : {1, 2}) ASSERT_OK(desk.Say(member, {Full(Alltoall("a", {6}, {1, 2, member}))}));
  EXPECT_TRUE(desk.TakeOne().sizes.empty());
}

TEST(Join, EndsWhenAllHaveJoined) {
  SequencerOptions options;
  options.members = {3, 5, 8};
  Desk desk(3, options);
  ASSERT_OK(desk.Join(2));
  ASSERT_OK(desk.Join(0));
  EXPECT_TRUE(desk.Take().empty());
  ASSERT_OK(desk.Join(1));
  const auto responses = desk.Take(0);
  ASSERT_EQ(responses.size(), size_t{1});
  EXPECT_EQ(responses[0].number, 1u);
  EXPECT_TRUE(responses[0].decisions.empty());
  EXPECT_EQ(responses[0].last_joined, GlobalRank(5));
  for (int member : {0, 1, 2}) EXPECT_FALSE(desk.root.merger().joined().Has(Position(member)));
  EXPECT_EQ(desk.root.Deadline(), -1);
  // Nobody is taken for joined now.
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w"))}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("w"))}));
  EXPECT_TRUE(desk.Take().empty());
  ASSERT_OK(desk.Say(2, {Full(Allreduce("w"))}));
  EXPECT_FALSE(desk.TakeOne().partial);
}

TEST(Join, OfOneMemberEndsAtOnce) {
  Desk desk(1);
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_OK(desk.Join(0, {Full(Allreduce("w"))}));
    const auto responses = desk.Take(0);
    ASSERT_EQ(responses.size(), size_t{1});
    EXPECT_EQ(responses[0].decisions.size(), size_t{1});
    EXPECT_EQ(responses[0].last_joined, GlobalRank(0));
  }
}

// An operation that only a joined member has announced, and others after it, are decided with the
// end.
TEST(Join, TheLastOneDecidesEverything) {
  Desk desk(3);
  ASSERT_OK(desk.Join(0, {Full(Allreduce("a")), Full(Barrier(), 1)}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("b"))}));
  ASSERT_OK(desk.Join(1, {Full(Barrier(), 1), Full(Barrier(), 2)}));
  ASSERT_OK(desk.Join(2));
  const auto responses = desk.Take(0);
  EXPECT_EQ(EndOf(responses), 2);
  ASSERT_EQ(responses.size(), size_t{1});
  ASSERT_EQ(responses[0].decisions.size(), size_t{4});
  for (const Decision& decision : responses[0].decisions) EXPECT_TRUE(decision.partial);
  EXPECT_TRUE(desk.root.Pending(100).empty());
}

TEST(Join, UnnamedOperationsAreCountedFromOneAgain) {
  Desk desk(2);
  ASSERT_OK(desk.Join(0, {Full(Barrier(), 1)}));
  ASSERT_OK(desk.Join(1, {Full(Barrier(), 1), Full(Barrier(), 2), Full(Barrier(), 3)}));
  EXPECT_EQ(EndOf(desk.Take(0)), 1);
  for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Cached(0, 1), Cached(0, 2)}));
  const auto responses = desk.Take();
  ASSERT_EQ(responses.size(), size_t{1});
  ASSERT_EQ(responses[0].decisions.size(), size_t{2});
  EXPECT_EQ(responses[0].decisions[1].ordinal, 2u);
  EXPECT_FALSE(responses[0].decisions[1].partial);
  EXPECT_FALSE(desk.Say(0, {Cached(0, 4)}).ok());
}

TEST(Join, TheOthersUnnamedOperationsGoOnWithoutGap) {
  Desk desk(2);
  ASSERT_OK(desk.Join(0));
  for (uint64_t ordinal = 1; ordinal <= 3; ++ordinal) {
    ASSERT_OK(desk.Say(1, {Full(Barrier(), ordinal)}));
    const Decision decision = desk.TakeOne();
    EXPECT_EQ(decision.ordinal, ordinal);
    EXPECT_EQ(decision.known, ordinal > 1);
    EXPECT_EQ(decision.request.has_value(), ordinal == 1);
  }
}

// ... so a batch need not wait for what the joined might still announce.
TEST(Join, TheJoinedAreBlockedOnEverything) {
  Desk desk(2);
  ASSERT_OK(desk.Join(0));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("a"))}, 0, 100));
  EXPECT_EQ(desk.root.Deadline(), 130);  // somebody is blocked
  ASSERT_OK(desk.Say(1, {}, 1, 110));
  EXPECT_EQ(desk.Take(110).size(), size_t{1});  // everybody is
  // Joining with what is ready already in the open batch.
  Desk later(2);
  ASSERT_OK(later.Say(0, {Full(Allreduce("a"))}, 0, 100));
  ASSERT_OK(later.Say(1, {Full(Allreduce("a"))}, 1, 100));
  EXPECT_TRUE(later.Take(110).empty());
  ASSERT_OK(later.Join(0, {}, 110));
  EXPECT_EQ(later.Take(110).size(), size_t{1});
  // After the end a joined member is blocked on nothing more.
  ASSERT_OK(later.Join(1, {}, 120));
  EXPECT_EQ(EndOf(later.Take(120)), 1);
  for (int member : {0, 1}) ASSERT_OK(later.Say(member, {Cached(0)}, 0, 200));
  EXPECT_EQ(later.root.Deadline(), 500);
}

TEST(Join, ABroadcastNeedsItsRoot) {
  SequencerOptions options;
  options.members = {1, 2, 4};
  Desk desk(3, options);
  for (int member : {0, 1, 2}) ASSERT_OK(desk.Say(member, {Full(Broadcast("x", 2))}));
  EXPECT_EQ(desk.TakeOne().error, "");
  ASSERT_OK(desk.Join(1, {Cached(0)}));
  for (int member : {0, 2}) ASSERT_OK(desk.Say(member, {Cached(0)}));
  EXPECT_EQ(desk.TakeOne().error, "");  // announced before it joined
  for (int member : {0, 2}) ASSERT_OK(desk.Say(member, {Cached(0)}));
  const Decision decision = desk.TakeOne(0);
  EXPECT_EQ(decision.error,
            "Root rank 2 of tensor 'x' has joined and has nothing to broadcast. Use a root rank "
            "that has not "
            "joined, or let rank 2 submit this broadcast before it joins.");
  EXPECT_EQ(decision.name, "x");
  EXPECT_TRUE(decision.partial);
  EXPECT_FALSE(decision.request.has_value());
  for (int member : {0, 2}) ASSERT_OK(desk.Say(member, {Full(Broadcast("y", 4))}));
  EXPECT_EQ(desk.TakeOne().error, "");
  for (int member : {0, 2}) ASSERT_OK(desk.Say(member, {Full(Broadcast("z", 3))}));
  EXPECT_TRUE(desk.TakeOne(0).error.find("is not in the process set") != std::string::npos);
}

TEST(Join, MismatchOfThoseThatAnnounced) {
  Desk desk(4);
  ASSERT_OK(desk.Join(1));
  ASSERT_OK(desk.Say(3, {Full(Allreduce("w", {5}))}));
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w", {4}))}));
  EXPECT_TRUE(desk.Take().empty());
  ASSERT_OK(desk.Join(2));
  const Decision decision = desk.TakeOne(0);
  EXPECT_EQ(decision.error,
            "Mismatched ALLREDUCE tensor shapes for tensor 'w': rank 0 sent [4], rank 3 sent [5]. "
            "Every rank must submit the same shape.");
  EXPECT_TRUE(decision.partial);
  for (int member : {0, 3}) ASSERT_OK(desk.Say(member, {Full(Allreduce("w"))}));
  EXPECT_EQ(desk.TakeOne().error, "");
}

// Several errors, each of which closes its batch, with the last join: the end comes after all of
// them.
TEST(Join, TheEndComesAfterTheErrors) {
  Desk desk(2);
  ASSERT_OK(desk.Join(0));
  ASSERT_OK(desk.Join(1, {Full(Broadcast("x", 0)), Full(Allreduce("w")), Full(Broadcast("y", 0))}));
  const auto responses = desk.Take(0);
  ASSERT_EQ(responses.size(), size_t{3});
  EXPECT_EQ(EndOf(responses), 1);
  EXPECT_TRUE(responses[2].decisions.empty());
  EXPECT_EQ(responses[2].number, 3u);
}

TEST(Join, NothingMayBeAnnouncedUntilTheEnd) {
  const std::string error = "corrupt announcement: rank 0 announced something after it had joined";
  for (int how : {0, 1}) {
    Desk desk(2);
    ASSERT_OK(desk.Say(0, {Full(Allreduce("a"))}));
    ASSERT_OK(desk.Join(0));
    ASSERT_OK(desk.Say(0, {}, 1));  // more urgent than before: no harm
    EXPECT_EQ((how == 0 ? desk.Join(0) : desk.Say(0, {Full(Allreduce("w"))})).message(), error);
  }
}

TEST(Join, TheJoinedAreNotAbsent) {
  Desk desk(4);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w"))}));
  ASSERT_OK(desk.Join(1));
  ASSERT_OK(desk.Join(2, {Full(Allreduce("w"))}));
  const auto pending = desk.root.Pending(100);
  ASSERT_EQ(pending.size(), size_t{1});
  EXPECT_TRUE(pending[0].ready == (Members{0, 2}.ranks()));
  EXPECT_TRUE(pending[0].absent == Members{3}.ranks());
  EXPECT_TRUE(StallReport(desk.root.Pending(20000000), 20000000, 10000000).find("not by rank 3.") !=
              std::string::npos);
}

// The time in which the set followed a schedule is none in which the others did nothing.
TEST(Join, IsWaitedForSinceSomebodyBelowANodeHasJoined) {
  SequencerOptions options;
  options.members = Members::Everybody(3);
  Coordinator root(options, {{GlobalRank(0), Positions{0}}, {GlobalRank(1), Positions{1, 2}}});
  constexpr Micros kLate = 50'000'000;
  AnnounceMessage message;
  message.joined = Positions{2};
  ASSERT_OK(root.Announce(1, message, kLate));
  const std::vector<Unready> pending = root.Pending(kLate + 1);
  ASSERT_EQ(pending.size(), size_t{1});
  EXPECT_TRUE(pending[0].kind == OpKind::kJoin && pending[0].since == kLate);
  EXPECT_TRUE(pending[0].absent == (Members{0, 1}.ranks()));
}

}  // namespace
}  // namespace hvd::negotiate
