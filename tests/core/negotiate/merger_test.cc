// A node below which others run nodes of their own. Whole trees, with random programs, are those of
// the simulators.

#include "negotiate/merge/merger.h"

#include <limits>

#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

// Positions 0, 2 and 5 to 7 of a set of ranks 10, 11, ...: two members, and the node of position 5.
struct Node {
  Node() : merger(Options()) {}

  static MergerOptions Options() {
    MergerOptions options;
    options.children = {{GlobalRank(10), {0}}, {GlobalRank(12), {2}}, {GlobalRank(15), {5, 6, 7}}};
    return options;
  }

  Status Say(size_t child, std::vector<Announcement> announcements, uint64_t urgent = 0,
             Micros now = 0) {
    return merger.Announce(child, Message(std::move(announcements), urgent), now);
  }
  Status Join(size_t child) {
    AnnounceMessage message;
    message.joins = true;
    return merger.Announce(child, std::move(message), 0);
  }

  std::vector<AnnounceMessage> Take() {
    std::vector<AnnounceMessage> all;
    for (AnnounceMessage message; merger.Take(&message);) all.push_back(std::move(message));
    return all;
  }
  // The only announcement of the only message; an odd one otherwise.
  Announcement TakeOne() {
    const std::vector<AnnounceMessage> all = Take();
    if (all.size() == 1 && all[0].announcements.size() == 1) return all[0].announcements[0];
    Announcement none;
    none.request.name = std::to_string(all.size()) + " messages";
    return none;
  }
  Status Decide(uint32_t id, const std::string& name, bool known = false) {
    Response response;
    Decision& decision = response.decisions.emplace_back();
    decision.id = id;
    decision.known = known;
    if (!known) decision.name = name;
    return merger.Pass(response);
  }

  Merger merger;
};

TEST(Merger, AnnouncesWhatAllHaveAnnounced) {
  Node node;
  ASSERT_OK(node.Say(0, {Full(Allreduce("a")), Full(Allreduce("b"))}));
  ASSERT_OK(node.Say(2, {Full(Allreduce("b")), Full(Allreduce("a"))}));
  EXPECT_TRUE(node.Take().empty());
  ASSERT_OK(node.Say(1, {Full(Allreduce("b"))}));
  const Announcement merged = node.TakeOne();
  EXPECT_EQ(merged.request.name, "b");
  EXPECT_TRUE(merged.variants.empty());
  EXPECT_TRUE(node.Take().empty());
}

// A full announcement of one child and the id of another meet, and the parent hears the id.
TEST(Merger, LearnsIdsFromTheResponses) {
  Node node;
  for (const size_t child : {0, 1, 2}) ASSERT_OK(node.Say(child, {Full(Allreduce("w"))}));
  EXPECT_EQ(node.TakeOne().id, kNoId);
  EXPECT_FALSE(node.Say(0, {Cached(0)}).ok());
  Node fresh;
  for (const size_t child : {0, 1, 2}) ASSERT_OK(fresh.Say(child, {Full(Allreduce("w"))}));
  (void)fresh.Take();
  ASSERT_OK(fresh.Decide(0, "w"));
  ASSERT_OK(fresh.Say(0, {Cached(0)}));
  ASSERT_OK(fresh.Say(1, {Full(Allreduce("w"))}));
  ASSERT_OK(fresh.Say(2, {Cached(0)}));
  EXPECT_EQ(fresh.TakeOne().id, 0u);
  ASSERT_OK(fresh.Decide(0, "", true));
}

TEST(Merger, RefusesResponsesToWhatItHasNotSaid) {
  Node node;
  ASSERT_OK(node.Say(0, {Full(Allreduce("w"))}));
  EXPECT_FALSE(node.Decide(0, "w").ok());
  Node other;
  EXPECT_FALSE(other.Decide(0, "w").ok());
  Node known;
  EXPECT_FALSE(known.Decide(3, "", true).ok());
  Node joins;
  Response end;
  end.last_joined = GlobalRank(10);
  EXPECT_FALSE(joins.merger.Pass(end).ok());
}

TEST(Merger, TellsUrgencyByTwoCounts) {
  Node node;
  for (const size_t child : {0, 1, 2}) ASSERT_OK(node.Say(child, {Full(Allreduce("w"))}, 0));
  std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].some_urgent, 0u);
  ASSERT_OK(node.Say(0, {}, 1));
  sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].some_urgent, 1u);
  EXPECT_EQ(sent[0].all_urgent, 0u);
  ASSERT_OK(node.Say(1, {}, 1));
  EXPECT_TRUE(node.Take().empty());
  AnnounceMessage some;
  some.some_urgent = 1;
  ASSERT_OK(node.merger.Announce(2, some, 0));
  EXPECT_TRUE(node.Take().empty());
  ASSERT_OK(node.Say(2, {}, 1));
  sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].all_urgent, 1u);
}

TEST(Merger, ListsWhoSentWhatWhereTheyDiffer) {
  Node node;
  ASSERT_OK(node.Say(2, {Full(Allreduce("w", {4}))}));
  ASSERT_OK(node.Say(0, {Full(Allreduce("w", {5}))}));
  ASSERT_OK(node.Say(1, {Full(Allreduce("w", {4}))}));
  const Announcement merged = node.TakeOne();
  ASSERT_EQ(merged.variants.size(), size_t{2});
  EXPECT_TRUE(merged.variants[0].senders == (Positions{2, 5, 6, 7}));
  EXPECT_TRUE(merged.variants[0].request.tensors[0].shape == Shape{4});
  EXPECT_TRUE(merged.variants[1].senders == Positions{0});
}

TEST(Merger, OrdersSizesByPosition) {
  Node node;
  Request two = Allgather("g", {1, 3});
  two.tensors.push_back({DataType::kInt8, {9}});
  Announcement merged = Full(two);
  merged.sizes = {50, 60, 70, 5, 6, 7};
  ASSERT_OK(node.Say(2, {merged}));
  two.tensors[0].shape[0] = 20;
  ASSERT_OK(node.Say(1, {Full(two)}));
  two.tensors[0].shape[0] = 0;
  ASSERT_OK(node.Say(0, {Full(two)}));
  EXPECT_TRUE(node.TakeOne().sizes == (Shape{0, 20, 50, 60, 70, 9, 9, 5, 6, 7}));
}

TEST(Merger, ThoseWhoHaveJoinedAreToldFirst) {
  Node node;
  ASSERT_OK(node.Say(0, {Full(Allreduce("before"))}));
  ASSERT_OK(node.Say(1, {Full(Allreduce("before")), Full(Allreduce("w"))}));
  ASSERT_OK(node.Say(2, {Full(Allreduce("before")), Full(Allreduce("w"))}));
  ASSERT_OK(node.Join(0));
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{2});
  EXPECT_TRUE(sent[0].joined.empty());
  EXPECT_EQ(sent[0].announcements[0].request.name, "before");
  EXPECT_TRUE(sent[1].joined == Positions{0});
  EXPECT_EQ(sent[1].announcements[0].request.name, "w");
  EXPECT_TRUE(sent[1].announcements[0].variants.empty());
  EXPECT_FALSE(sent[1].joins);
}

// It is among the senders, though it has joined: so they are listed.
TEST(Merger, WhatSomebodyAnnouncedBeforeItJoinedIsWhole) {
  Node node;
  ASSERT_OK(node.Say(0, {Full(Allreduce("w"))}));
  ASSERT_OK(node.Join(0));
  ASSERT_OK(node.Say(1, {Full(Allreduce("w"))}));
  AnnounceMessage some = Message({Full(Allreduce("w"))});
  some.joined = {6};
  ASSERT_OK(node.merger.Announce(2, some, 0));
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_TRUE(sent[0].joined == (Positions{0, 6}));
  ASSERT_EQ(sent[0].announcements[0].variants.size(), size_t{1});
  EXPECT_TRUE(sent[0].announcements[0].variants[0].senders == (Positions{0, 2, 5, 7}));
}

TEST(Merger, JoinsWhenAllBelowHave) {
  Node node;
  ASSERT_OK(node.Say(0, {Full(Allreduce("w"))}));
  ASSERT_OK(node.Join(0));
  ASSERT_OK(node.Join(1));
  AnnounceMessage all;
  all.joined = {5, 6, 7};
  all.joins = true;
  all.last = Position(6);
  ASSERT_OK(node.merger.Announce(2, all, 0));
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_TRUE(sent[0].joins);
  EXPECT_EQ(sent[0].last, Position(6));
  EXPECT_TRUE(sent[0].joined == node.merger.below());
  ASSERT_EQ(sent[0].announcements.size(), size_t{1});
  EXPECT_TRUE(sent[0].announcements[0].variants[0].senders == Positions{0});
  EXPECT_FALSE(node.Say(1, {Full(Allreduce("x"))}).ok());
  // What others go on with is described to those who have joined, and then the join ends.
  Response response;
  Decision& decision = response.decisions.emplace_back();
  decision.name = "others";
  decision.id = 0;
  decision.partial = true;
  decision.request = Allreduce("others");
  response.decisions.emplace_back().name = "w";
  response.last_joined = GlobalRank(17);
  EXPECT_TRUE(node.Take().empty());
  Node fresh;
  ASSERT_OK(node.merger.Pass(response));
  ASSERT_OK(node.Say(1, {Cached(0)}));
}

TEST(Merger, NamesWhomTheOthersWaitedFor) {
  Node node;
  ASSERT_OK(node.Say(1, {Full(Allreduce("w"))}, 0, 1000));
  ASSERT_OK(node.Say(0, {Full(Allreduce("w"))}, 0, 3000));
  Announcement merged = Full(Allreduce("w"));
  merged.last = Position(7);
  merged.waited = 50000;
  ASSERT_OK(node.Say(2, {merged}, 0, 9000));
  EXPECT_EQ(node.TakeOne().last, Position(7));
  // Without it those below were ready later than the others here.
  Node other;
  ASSERT_OK(other.Say(1, {Full(Allreduce("w"))}, 0, 1000));
  ASSERT_OK(other.Say(0, {Full(Allreduce("w"))}, 0, 3000));
  merged.waited = 700;
  ASSERT_OK(other.Say(2, {merged}, 0, 9000));
  EXPECT_EQ(other.TakeOne().waited, 700);
  Node member;
  ASSERT_OK(member.Say(1, {Full(Allreduce("w"))}, 0, 1000));
  ASSERT_OK(member.Say(2, {merged}, 0, 3000));
  ASSERT_OK(member.Say(0, {Full(Allreduce("w"))}, 0, 3000 + kToldLateness));
  const Announcement late = member.TakeOne();
  EXPECT_EQ(late.last, Position(0));
  EXPECT_EQ(late.waited, kToldLateness);
}

TEST(Merger, TellsWhatWaitsOnceAndAgainWhenItChanges) {
  Node node;
  ASSERT_OK(node.Say(1, {Full(Allreduce("w")), Full(Barrier(), 1)}, 0, 5));
  node.merger.Look(node.merger.Deadline() - 1);
  EXPECT_TRUE(node.Take().empty());
  node.merger.Look(node.merger.Deadline());
  std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_TRUE(sent[0].waiting && sent[0].waiting->size() == 2);
  EXPECT_TRUE((*sent[0].waiting)[0].ready == Positions{2});
  node.merger.Look(node.merger.Deadline());
  EXPECT_TRUE(node.Take().empty());
  // What another node tells is added.
  AnnounceMessage told;
  Waiting& waiting = told.waiting.emplace().emplace_back();
  waiting.name = "w";
  waiting.ready = {6};
  waiting.waited = 9'000'000;
  ASSERT_OK(node.merger.Announce(2, told, 3'000'000));
  node.merger.Look(node.merger.Deadline());
  sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ((*sent[0].waiting)[0].name, "w");
  EXPECT_TRUE((*sent[0].waiting)[0].ready == (Positions{2, 6}));
  EXPECT_TRUE((*sent[0].waiting)[0].waited >= 9'000'000);
  // It is announced, and waits no more: who hears that needs not be told.
  for (const size_t child : {0, 2})
    ASSERT_OK(node.Say(child, {Full(Allreduce("w"))}, 0, 4'000'000));
  node.merger.Look(node.merger.Deadline());
  sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].announcements.size(), size_t{1});
  EXPECT_FALSE(sent[0].waiting.has_value());
}

// A node may look only now and then, as where its own program computes.
TEST(Merger, TellsOfAnOperationThatWaitsAgainAsItDidTheLastTime) {
  Node node;
  constexpr Micros kLate = 2'500'000;
  for (const Micros begin : {Micros{0}, 2 * kLate}) {
    ASSERT_OK(node.Say(1, {Full(Allreduce("w"))}, 0, begin));
    node.merger.Look(begin + kLate);
    const auto told = node.Take();
    ASSERT_EQ(told.size(), size_t{1});
    ASSERT_TRUE(told[0].waiting && told[0].waiting->size() == 1);
    EXPECT_TRUE((*told[0].waiting)[0].ready == Positions{2});
    ASSERT_OK(node.Say(0, {Full(Allreduce("w"))}, 0, begin + kLate));
    ASSERT_OK(node.Say(2, {Full(Allreduce("w"))}, 0, begin + kLate));
    EXPECT_EQ(node.TakeOne().request.name, "w");
    ASSERT_OK(node.Decide(kNoId, "w"));
  }
}

// It has waited for as long as whoever told of it first says, also once that one has announced it.
TEST(Merger, GoesOnTellingOfWhatANodeHasToldOfAndAnnouncesNow) {
  Node node;
  AnnounceMessage told;
  Waiting& waiting = told.waiting.emplace().emplace_back();
  waiting.name = "w";
  waiting.ready = {6};
  waiting.waited = 1'500'000;
  ASSERT_OK(node.merger.Announce(2, told, 2'000'000));
  node.merger.Look(2'000'000);
  ASSERT_EQ(node.Take().size(), size_t{1});
  ASSERT_OK(node.Say(2, {Full(Allreduce("w"))}, 0, 3'000'000));
  node.merger.Look(node.merger.Deadline() - 1);
  node.merger.Look(4'000'000);
  const auto sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_TRUE(sent[0].waiting && sent[0].waiting->size() == 1);
  EXPECT_TRUE((*sent[0].waiting)[0].ready == (Positions{5, 6, 7}));
  EXPECT_EQ((*sent[0].waiting)[0].waited, 3'500'000);
}

// What a node says of time can be any number that fits.
TEST(Merger, TellsOfNoTimeBeforeTheBeginning) {
  constexpr Micros kLongest = std::numeric_limits<Micros>::max();
  Node node;
  AnnounceMessage told;
  Waiting& waiting = told.waiting.emplace().emplace_back();
  waiting.name = "w";
  waiting.ready = {6};
  waiting.waited = kLongest - 5;
  ASSERT_OK(node.merger.Announce(2, told, 0));
  node.merger.Look(1'000'000);
  const std::vector<AnnounceMessage> sent = node.Take();
  ASSERT_EQ(sent.size(), size_t{1});
  ASSERT_TRUE(sent[0].waiting && sent[0].waiting->size() == 1);
  EXPECT_EQ((*sent[0].waiting)[0].waited, kLongest);
}

std::string Refused(AnnounceMessage message, size_t child = 2) {
  Node node;
  return node.merger.Announce(child, std::move(message), 0).message();
}

TEST(Merger, RefusesWhatANodeCannotSay) {
  const std::string who = "corrupt announcement: rank 15 ";
  AnnounceMessage message;
  message.joined = {4};
  EXPECT_TRUE(Refused(message).find(who + "says of ranks that are not below it") == 0);
  EXPECT_EQ(Refused(message, 0), "corrupt announcement: rank 10 speaks for others");
  message.joined = {5, 6};
  EXPECT_EQ(Refused(message), "");
  message.joins = true;
  message.last = Position(5);
  EXPECT_EQ(Refused(message), who + "joins without all ranks that are below it");
  message = {};
  message.waiting.emplace().emplace_back().name = "w";
  (*message.waiting)[0].ready = {1};
  EXPECT_TRUE(Refused(message).find(who) == 0);
  Announcement varied;
  varied.variants = {{kNoId, Allreduce("w"), {5, 6}}, {kNoId, Allreduce("w", {3}), {7}}};
  EXPECT_EQ(Refused(Message({varied})), "");
  varied.variants[1].senders = {6, 7};
  EXPECT_EQ(Refused(Message({varied})), who + "does not say who sent what");
  varied.variants[1].senders = {2, 7};
  EXPECT_EQ(Refused(Message({varied})), who + "does not say who sent what");
  varied.variants.pop_back();
  EXPECT_EQ(Refused(Message({varied})), who + "does not say who sent what");
  varied.variants[0].senders = {5, 6, 7};
  varied.variants.push_back({kNoId, Allreduce("v"), {7}});
  EXPECT_EQ(Refused(Message({varied})), who + "describes two operations as one");
  Announcement late = Full(Allreduce("w"));
  late.last = Position(0);
  EXPECT_EQ(Refused(Message({late})), who + "waited for a rank that is not below it");
  message = Message({Full(Allreduce("w"))});
  message.all_urgent = 1;
  EXPECT_TRUE(Refused(message).find(who + "is blocked on more operations") == 0);
}

}  // namespace
}  // namespace hvd::negotiate
