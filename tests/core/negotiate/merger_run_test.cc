// A merger whose children announce runs of operations.

#include <vector>

#include "check.h"
#include "negotiate/merge/merger.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

constexpr uint32_t kNamed = 10;
constexpr uint32_t kBarrier = 10;
constexpr uint32_t kAllgather = 11;
constexpr uint32_t kIds = 12;

std::string NameOf(uint32_t id) { return "t" + std::to_string(id); }

// Two members, and the node of positions 5 to 7, which know operations 0 to 9 by name, a barrier
// and an allgather. Each has announced each of them once.
struct Node {
  Node() : merger(Options()) {
    std::vector<Announcement> all;
    Response response;
    for (uint32_t id = 0; id < kNamed; ++id) all.push_back(Full(Allreduce(NameOf(id))));
    all.push_back(Full(Barrier(), 1));
    all.push_back(Full(Allgather(NameOf(kAllgather), {4})));
    for (const size_t child : {0, 1, 2}) {
      if (child == 2) all.back().sizes = {4, 4, 4};
      ExpectOk(Say(child, all));
    }
    (void)Take();
    for (uint32_t id = 0; id < kIds; ++id) {
      Decision& decision = response.decisions.emplace_back();
      decision.id = id;
      if (id != kBarrier) decision.name = NameOf(id);
      if (id == kBarrier) decision.ordinal = 1;
    }
    ExpectOk(merger.Pass(response));
  }

  static MergerOptions Options() {
    MergerOptions options;
    options.children = {{GlobalRank(10), {0}}, {GlobalRank(12), {2}}, {GlobalRank(15), {5, 6, 7}}};
    return options;
  }

  static void ExpectOk(const Status& status) { EXPECT_EQ(status.message(), ""); }

  Status Say(size_t child, std::vector<Announcement> announcements, uint64_t urgent = 0,
             Micros now = 0) {
    return merger.Announce(child, Message(std::move(announcements), urgent), now);
  }
  Status Decide(uint32_t first, uint32_t count) {
    Response response;
    Decision& run = response.decisions.emplace_back();
    run.id = first;
    run.count = count;
    run.known = true;
    return merger.Pass(response);
  }
  std::vector<AnnounceMessage> Take() {
    std::vector<AnnounceMessage> all;
    for (AnnounceMessage message; merger.Take(&message);) all.push_back(std::move(message));
    return all;
  }
  // "0-4 7 8-9": of the only message, or a note of how many there are.
  std::string TakeRuns() {
    const std::vector<AnnounceMessage> all = Take();
    if (all.size() != 1) return std::to_string(all.size()) + " messages";
    std::string text;
    for (const Announcement& run : all[0].announcements) {
      text += (text.empty() ? "" : " ") + std::to_string(run.id);
      if (run.count > 1) text += "-" + std::to_string(run.id + run.count - 1);
    }
    return text;
  }

  Merger merger;
};

TEST(MergerRun, IsMergedWithWhateverTheOthersAnnounce) {
  Node node;
  ASSERT_OK(node.Say(0, {Run(0, 10)}));
  ASSERT_OK(node.Say(1, {Run(5, 5), Run(0, 5)}));
  EXPECT_TRUE(node.Take().empty());
  for (uint32_t id = 0; id < 9; ++id) ASSERT_OK(node.Say(2, {Cached(id)}));
  EXPECT_EQ(node.TakeRuns(), "0-8");
  ASSERT_OK(node.Say(2, {Full(Allreduce(NameOf(9)))}));
  EXPECT_EQ(node.TakeRuns(), "9");
  ASSERT_OK(node.Decide(0, 10));
  EXPECT_TRUE(node.merger.idle());
  // In whatever order they become ready.
  ASSERT_OK(node.Say(2, {Run(0, 10)}));
  ASSERT_OK(node.Say(0, {Run(0, 10)}));
  ASSERT_OK(node.Say(1, {Run(5, 5), Run(0, 3), Cached(4), Cached(3)}));
  EXPECT_EQ(node.TakeRuns(), "5-9 0-2 4 3");
}

TEST(MergerRun, OfOtherwiseEqualOperationsEndsAtWhatIsNot) {
  Node node;
  for (const size_t child : {0, 1, 2}) {
    const Shape sizes = child == 2 ? Shape{4, 4, 4} : Shape{4};
    ASSERT_OK(node.Say(child, {Run(8, 2), Cached(kBarrier, 2), Cached(kAllgather, 0, sizes)}));
  }
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_EQ(sent[0].announcements.size(), size_t{3});
  EXPECT_EQ(sent[0].announcements[0].count, 2u);
  EXPECT_EQ(sent[0].announcements[1].ordinal, 2u);
  EXPECT_EQ(sent[0].announcements[2].sizes.size(), size_t{5});
}

TEST(MergerRun, CountsOperationsInUrgency) {
  Node node;
  constexpr uint64_t kBefore = kIds;  // announcements of each
  EXPECT_FALSE(node.Say(0, {Run(0, 3)}, kBefore + 4).ok());
  Node fresh;
  ASSERT_OK(fresh.Say(0, {Run(0, 3)}, kBefore + 2));
  ASSERT_OK(fresh.Say(1, {Run(0, 3)}, kBefore + 3));
  ASSERT_OK(fresh.Say(2, {Run(0, 3)}, kBefore + 1));
  const std::vector<AnnounceMessage> sent = fresh.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].some_urgent, kBefore + 3);
  EXPECT_EQ(sent[0].all_urgent, kBefore + 1);
}

TEST(MergerRun, IsOfOneLateness) {
  Node node;
  ASSERT_OK(node.Say(0, {Run(0, 10)}, 0, 1000));
  ASSERT_OK(node.Say(2, {Run(0, 4)}, 0, 1000));
  ASSERT_OK(node.Say(2, {Run(4, 6)}, 0, 1500));
  ASSERT_OK(node.Say(1, {Run(0, 10)}, 0, 1500 + kToldLateness / 2));
  std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_EQ(sent[0].announcements.size(), size_t{2});
  EXPECT_EQ(sent[0].announcements[0].count, 4u);
  EXPECT_EQ(sent[0].announcements[0].last, Position(2));
  EXPECT_EQ(sent[0].announcements[0].waited, 500 + kToldLateness / 2);
  EXPECT_EQ(sent[0].announcements[1].count, 6u);
  EXPECT_FALSE(sent[0].announcements[1].last.known());
  // What a node says of a run it says of each of it.
  ASSERT_OK(node.Decide(0, 10));
  ASSERT_OK(node.Say(0, {Run(0, 2)}, 0, 2000));
  ASSERT_OK(node.Say(1, {Run(0, 2)}, 0, 2000));
  Announcement late = Run(0, 2);
  late.last = Position(6);
  late.waited = 700;
  ASSERT_OK(node.Say(2, {late}, 0, 9000));
  sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_EQ(sent[0].announcements.size(), size_t{1});
  EXPECT_EQ(sent[0].announcements[0].count, 2u);
  EXPECT_EQ(sent[0].announcements[0].last, Position(6));
  EXPECT_EQ(sent[0].announcements[0].waited, 700);
}

TEST(MergerRun, LacksNobodyWhoHasJoined) {
  Node node;
  AnnounceMessage joins;
  joins.joins = true;
  ASSERT_OK(node.Say(0, {Run(0, 3)}));
  ASSERT_OK(node.Say(2, {Run(0, 5)}));
  ASSERT_OK(node.merger.Announce(1, joins, 0));
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_TRUE(sent[0].joined == Positions{2});
  ASSERT_EQ(sent[0].announcements.size(), size_t{1});
  EXPECT_EQ(sent[0].announcements[0].count, 3u);
  ASSERT_OK(node.Say(0, {Run(3, 2)}));
  EXPECT_EQ(node.TakeRuns(), "3-4");
}

// One was announced with another description: it is told on its own, with who sent what.
TEST(MergerRun, IsInterruptedByADisagreement) {
  Node node;
  ASSERT_OK(node.Say(0, {Run(0, 5)}));
  ASSERT_OK(node.Say(1, {Run(0, 2), Full(Allreduce(NameOf(2), {7})), Run(3, 2)}));
  ASSERT_OK(node.Say(2, {Run(0, 5)}));
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_EQ(sent[0].announcements.size(), size_t{3});
  EXPECT_EQ(sent[0].announcements[0].count, 2u);
  EXPECT_EQ(sent[0].announcements[1].variants.size(), size_t{2});
  EXPECT_TRUE(sent[0].announcements[1].variants[0].senders == (Positions{0, 5, 6, 7}));
  EXPECT_EQ(sent[0].announcements[2].id, 3u);
}

TEST(MergerRun, IsRefusedWhereItCannotBeRight) {
  const std::string who = "corrupt announcement: rank 12 ";
  const auto refused = [](std::vector<std::vector<Announcement>> said) {
    Node node;
    Status status;
    for (auto& one : said) {
      if (status.ok()) status = node.Say(1, std::move(one));
    }
    return status.message();
  };
  EXPECT_EQ(refused({{Run(0, 10)}}), "");
  EXPECT_EQ(refused({{Run(8, 3)}}), who + "announced id 10 with the wrong kind of key");
  EXPECT_EQ(refused({{Run(kAllgather, 2)}}),
            who + "announced 0 sizes instead of 1 with an allgather");
  EXPECT_EQ(refused({{Run(kIds, 2)}}), who + "announced the unknown id 12");
  EXPECT_EQ(refused({{Run(kIds, kNoId - kIds)}}), who + "announced the unknown id 12");
  EXPECT_EQ(refused({{Cached(3)}, {Run(0, 5)}}), who + "announced 't3' twice");
  EXPECT_EQ(refused({{Run(0, 5), Run(4, 3)}}), who + "announced 't4' twice");
  Announcement late = Run(0, 5);
  late.last = Position(2);
  EXPECT_EQ(refused({{late}}), who + "waited for a rank that is not below it");
}

TEST(MergerRun, OfDecisionsIsAnAnswerToAllOfIt) {
  Node node;
  for (const size_t child : {0, 1}) ASSERT_OK(node.Say(child, {Run(0, 10)}));
  ASSERT_OK(node.Say(2, {Run(0, 9)}));
  EXPECT_FALSE(node.Decide(0, 10).ok());
  Node sound;
  for (const size_t child : {0, 1, 2}) ASSERT_OK(sound.Say(child, {Run(0, 10)}));
  ASSERT_OK(sound.Decide(0, 4));
  ASSERT_OK(sound.Decide(4, 6));
  EXPECT_TRUE(sound.merger.idle());
  EXPECT_FALSE(sound.Decide(4, 6).ok());
  EXPECT_FALSE(sound.Decide(kNamed, 2).ok());
  EXPECT_FALSE(sound.Decide(kIds, kNoId - kIds).ok());
}

TEST(MergerRun, IsAboutEachOfItsOperationsThatAreKnown) {
  const Node node;
  const std::vector<Request> all = node.merger.RequestsIn(Run(0, 10));
  ASSERT_EQ(all.size(), size_t{10});
  EXPECT_EQ(all[9].name, NameOf(9));
  EXPECT_EQ(node.merger.RequestsIn(Run(9, kNoId - 9)).size(), size_t{3});
  EXPECT_EQ(node.merger.RequestsIn(Run(kIds, 5)).size(), size_t{1});
}

}  // namespace
}  // namespace hvd::negotiate
