#include "negotiate/sequencer.h"

#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

TEST(Sequencer, WaitsForEveryMember) {
  Desk desk(3);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w"))}));
  ASSERT_OK(desk.Say(2, {Full(Allreduce("w"))}));
  EXPECT_EQ(desk.root.Deadline(), -1);
  EXPECT_TRUE(desk.Take().empty());
  ASSERT_OK(desk.Say(1, {Full(Allreduce("w"))}));
  const Decision decision = desk.TakeOne();
  EXPECT_EQ(decision.name, "w");
  EXPECT_EQ(decision.id, 0u);
  EXPECT_FALSE(decision.known);
  EXPECT_EQ(decision.error, "");
}

TEST(Sequencer, NumbersFromOneInReadyOrder) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("a")), Full(Allreduce("b")), Full(Allreduce("c"))}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("c")), Full(Allreduce("a"))}));
  const auto first = desk.Take();
  ASSERT_EQ(first.size(), size_t{1});
  EXPECT_EQ(first[0].number, 1u);
  ASSERT_EQ(first[0].decisions.size(), size_t{2});
  EXPECT_EQ(first[0].decisions[0].name, "c");
  EXPECT_EQ(first[0].decisions[1].name, "a");
  ASSERT_OK(desk.Say(1, {Full(Allreduce("b"))}));
  const auto second = desk.Take();
  ASSERT_EQ(second.size(), size_t{1});
  EXPECT_EQ(second[0].number, 2u);
  EXPECT_EQ(second[0].decisions[0].id, 2u);
}

TEST(Sequencer, CachedIdsAreStable) {
  Desk desk(2);
  for (int step = 0; step < 3; ++step) {
    for (uint32_t id = 0; id < 4; ++id) {
      const Request request = Allreduce("w" + std::to_string(id));
      for (int member : {0, 1})
        ASSERT_OK(desk.Say(member, {step == 0 ? Full(request) : Cached(id)}));
      const Decision decision = desk.TakeOne();
      EXPECT_EQ(decision.id, id);
      EXPECT_EQ(decision.known, step > 0);
      EXPECT_EQ(decision.name, step > 0 ? "" : request.name);
    }
  }
}

TEST(Sequencer, ShapeChangeGetsAnIdOfItsOwn) {
  Desk desk(2);
  for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Full(Allreduce("w", {4}))}));
  EXPECT_EQ(desk.TakeOne().id, 0u);
  for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Full(Allreduce("w", {5}))}));
  const Decision changed = desk.TakeOne();
  EXPECT_EQ(changed.id, 1u);
  EXPECT_EQ(changed.name, "w");
  // Back again, one by id and one in full: they agree.
  ASSERT_OK(desk.Say(0, {Cached(0)}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("w", {4}))}));
  const Decision back = desk.TakeOne();
  EXPECT_EQ(back.id, 0u);
  EXPECT_TRUE(back.known);
  // By id against another shape in full, or by another id: they do not.
  ASSERT_OK(desk.Say(0, {Cached(0)}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("w", {6}))}));
  EXPECT_TRUE(desk.TakeOne().error.find("rank 0 sent [4], rank 1 sent [6]") != std::string::npos);
  ASSERT_OK(desk.Say(0, {Cached(1)}));
  ASSERT_OK(desk.Say(1, {Cached(0)}));
  EXPECT_TRUE(desk.TakeOne().error.find("rank 0 sent [5], rank 1 sent [4]") != std::string::npos);
  for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Cached(1)}));
  EXPECT_EQ(desk.TakeOne().error, "");
}

TEST(Sequencer, FullOrDisabledCacheSendsNames) {
  SequencerOptions options;
  options.learning.repeats = 0;  // nobody needs ids
  for (bool cache : {true, false}) {
    options.cache_capacity = cache ? 1 : 0;
    Desk desk(2, options);
    for (int step = 0; step < 3; ++step) {
      for (const char* name : {"a", "b"}) {
        for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Full(Allreduce(name))}));
        const Decision decision = desk.TakeOne();
        const bool cached = cache && *name == 'a';
        EXPECT_EQ(decision.id, cached ? 0u : kNoId);
        EXPECT_EQ(decision.name, cached && step > 0 ? "" : name);
      }
    }
  }
}

// Names that never come back fill the cache; those that do get ids all the same.
TEST(Sequencer, ForgetsIdsWhenMostOperationsFindNone) {
  SequencerOptions options;
  options.cache_capacity = 4;
  Desk desk(2, options);
  int forgotten = 0;
  const auto run = [&](Announcement announcement) {
    for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {announcement}, 0, 0));
    const std::vector<Response> responses = desk.Take();
    ASSERT_EQ(responses.size(), size_t{1});
    if (responses[0].forgets) ++forgotten;
  };
  // Each message says how often its sender has been told to forget.
  for (int name = 0; name < 8; ++name) run(Full(Allreduce(std::to_string(name))));
  EXPECT_EQ(forgotten, 1);
  AnnounceMessage late = Message({Cached(0)}, 0);
  ASSERT_OK(desk.root.Announce(0, late, 0));  // sent before: it counts for nothing
  EXPECT_TRUE(desk.Take().empty());
  for (size_t member : {0, 1}) {
    AnnounceMessage message = Message({Full(Allreduce("stays"))}, 0);
    message.epoch = 1;
    ASSERT_OK(desk.root.Announce(member, message, 0));
  }
  EXPECT_EQ(desk.TakeOne().id, 0u);
}

TEST(Sequencer, UnnamedMatchByOrdinal) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce(""), 1), Full(Allreduce(""), 2), Full(Barrier(), 3)}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce(""), 1), Full(Allreduce(""), 2), Full(Barrier(), 3)}));
  const auto responses = desk.Take();
  ASSERT_EQ(responses.size(), size_t{1});
  ASSERT_EQ(responses[0].decisions.size(), size_t{3});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(responses[0].decisions[i].ordinal, i + 1);
    EXPECT_EQ(responses[0].decisions[i].id, i < 2 ? 0u : 1u);  // one id per description
    EXPECT_EQ(responses[0].decisions[i].known, i == 1);
    EXPECT_EQ(responses[0].decisions[i].name, "");
  }
  ASSERT_OK(desk.Say(1, {Cached(1, 4)}));
  ASSERT_OK(desk.Say(0, {Full(Barrier(), 4)}));
  EXPECT_EQ(desk.TakeOne().ordinal, 4u);
}

// Rank 1 announces in full what rank 0, a response later, announces by the id it got meanwhile.
TEST(Sequencer, IdGivenBetweenTwoAnnouncements) {
  Desk desk(2);
  ASSERT_OK(desk.Say(1, {Full(Allreduce(""), 1), Full(Allreduce(""), 2)}));
  ASSERT_OK(desk.Say(0, {Full(Allreduce(""), 1)}));
  EXPECT_EQ(desk.TakeOne().id, 0u);
  ASSERT_OK(desk.Say(0, {Cached(0, 2)}));
  const Decision decision = desk.TakeOne();
  EXPECT_EQ(decision.error, "");
  EXPECT_EQ(decision.id, 0u);
  EXPECT_TRUE(decision.known);
}

TEST(Sequencer, AllgatherCarriesSizesOf) {
  Desk desk(3);
  Request request = Allgather("g", {2, 8});
  request.tensors.push_back({DataType::kInt8, {5}});
  for (int step = 0; step < 2; ++step) {
    for (int member = 0; member < 3; ++member) {
      const Shape dims{member + step, 10 * member};
      Announcement announcement = step == 0 ? Full(request) : Cached(0);
      announcement.sizes = dims;
      ASSERT_OK(desk.Say(member, {announcement}));
    }
    const Decision decision = desk.TakeOne();
    EXPECT_EQ(decision.error, "");
    EXPECT_TRUE(decision.sizes == (std::vector<int64_t>{step, 1 + step, 2 + step, 0, 10, 20}));
  }
}

TEST(Sequencer, AlltoallIsTheSameWhateverEachSendsToEach) {
  Desk desk(3);
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t m = 0; m < 3; ++m) {
      const Shape splits{m, 10 * m + step, 7};
      const Request request = Alltoall("a", {11 * m + step + 7, 2}, splits);
      ASSERT_OK(desk.Say(static_cast<int>(m), {step == 0 ? Full(request) : Cached(0)}));
    }
    const Decision decision = desk.TakeOne();
    EXPECT_EQ(decision.error, "");
    EXPECT_EQ(decision.id, 0u);
    EXPECT_EQ(decision.known, step == 1);
    EXPECT_TRUE(decision.sizes.empty());
  }
}

TEST(Sequencer, ReducescatterCarriesNoSizes) {
  Desk desk(2);
  for (int step = 0; step < 2; ++step) {
    for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Full(Reducescatter("r", {5, 2}))}));
    const Decision decision = desk.TakeOne();
    EXPECT_EQ(decision.error, "");
    EXPECT_EQ(decision.known, step == 1);
    EXPECT_TRUE(decision.sizes.empty());
  }
}

TEST(Batch, ClosesAfterSilence) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("a")), Full(Allreduce("b"))}, 0, 1000));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("a"))}, 0, 1000));
  EXPECT_EQ(desk.root.Deadline(), 1300);
  EXPECT_TRUE(desk.Take(1299).empty());
  ASSERT_OK(desk.Say(1, {Full(Allreduce("b"))}, 0, 1299));
  EXPECT_EQ(desk.root.Deadline(), 1599);
  EXPECT_TRUE(desk.Take(1598).empty());
  const auto responses = desk.Take(1599);
  ASSERT_EQ(responses.size(), size_t{1});
  EXPECT_EQ(responses[0].decisions.size(), size_t{2});
  EXPECT_EQ(desk.root.Deadline(), -1);
}

// A tensor every 200 us leaves no pause, and nobody is blocked on any.
TEST(Batch, ATrickleDoesNotPutItOffForEver) {
  Desk desk(2);
  std::vector<size_t> sizes;
  for (int i = 0; i <= 25; ++i) {
    const std::string name = "t" + std::to_string(i);
    for (const int member : {0, 1})
      ASSERT_OK(desk.Say(member, {Full(Allreduce(name))}, 0, 1000 + 200 * i));
    if (i == 9) EXPECT_EQ(desk.root.Deadline(), 3000);
    for (const Response& response : desk.Take(1000 + 200 * i))
      sizes.push_back(response.decisions.size());
  }
  // The first one's age counts; the next batch begins with what comes after it.
  EXPECT_EQ(sizes.size(), size_t{2});
  for (const size_t size : sizes) EXPECT_EQ(size, size_t{11});
}

TEST(Batch, ClosesAfterTheTensorThatCrossesTheBytes) {
  SequencerOptions options;
  options.batch_bytes = 100;
  Desk desk(2, options);
  std::vector<Announcement> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(Full(Allreduce("w" + std::to_string(i), {10})));  // 40 bytes each
  ASSERT_OK(desk.Say(0, all));
  ASSERT_OK(desk.Say(1, all));
  const auto at_once = desk.Take(0);
  ASSERT_EQ(at_once.size(), size_t{1});
  EXPECT_EQ(at_once[0].decisions.size(), size_t{3});
  EXPECT_EQ(desk.TakeOne(299).error, "0 responses instead of one with one decision");
  EXPECT_EQ(desk.Take(300)[0].decisions.size(), size_t{2});
}

TEST(Batch, BytesOfAllgatherAreThoseOfTheResult) {
  SequencerOptions options;
  options.batch_bytes = 4 * 7 * 30;
  Desk desk(2, options);
  for (int rows : {29, 30}) {
    ASSERT_OK(desk.Say(0, {Full(Allgather("g" + std::to_string(rows), {rows - 3, 7}))}));
    ASSERT_OK(desk.Say(1, {Full(Allgather("g" + std::to_string(rows), {3, 7}))}));
    EXPECT_EQ(desk.Take(0).size(), rows == 29 ? size_t{0} : size_t{1});
    desk.Take();
  }
}

TEST(Batch, BytesOfAlltoallAreThoseThatOneMemberSends) {
  SequencerOptions options;
  options.batch_bytes = 4 * 7 * 30;
  Desk desk(2, options);
  for (int rows : {29, 30}) {
    const std::string name = "a" + std::to_string(rows);
    ASSERT_OK(desk.Say(0, {Full(Alltoall(name, {rows, 7}, {9, rows - 9}))}));
    ASSERT_OK(desk.Say(1, {Full(Alltoall(name, {rows, 7}, {rows, 0}))}));
    EXPECT_EQ(desk.Take(0).size(), rows == 29 ? size_t{0} : size_t{1});
    desk.Take();
  }
}

TEST(Batch, OneBlockedMemberShortensTheSilence) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("a"))}, 1, 0));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("a"))}, 0, 0));
  EXPECT_EQ(desk.root.Deadline(), 30);
  // It may block later than it becomes ready, too; on something else than what is ready it does not
  // count.
  Desk later(2);
  ASSERT_OK(later.Say(0, {Full(Allreduce("x")), Full(Allreduce("a"))}, 1, 0));
  ASSERT_OK(later.Say(1, {Full(Allreduce("a"))}, 0, 0));
  EXPECT_EQ(later.root.Deadline(), 300);
  ASSERT_OK(later.Say(0, {}, 2, 10));
  EXPECT_EQ(later.root.Deadline(), 30);
}

TEST(Batch, ClosesAtOnceWhenAllAreBlockedOnOneTensor) {
  Desk desk(3);
  for (int member : {0, 1})
    ASSERT_OK(desk.Say(member, {Full(Allreduce("a")), Full(Allreduce("b"))}, 1));
  ASSERT_OK(desk.Say(2, {Full(Allreduce("b")), Full(Allreduce("a"))}, 1));
  EXPECT_TRUE(desk.Take(0).empty());  // 0 and 1 wait for a, 2 for b
  ASSERT_OK(desk.Say(2, {}, 2));
  const auto responses = desk.Take(0);
  ASSERT_EQ(responses.size(), size_t{1});
  EXPECT_EQ(responses[0].decisions.size(), size_t{2});
  // The batch after it starts afresh, while old urgency counts no further.
  for (int member : {0, 1, 2}) ASSERT_OK(desk.Say(member, {Cached(0)}, 2, 1000));
  EXPECT_EQ(desk.root.Deadline(), 1300);
}

TEST(Batch, AnErrorClosesIt) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("a")), Full(Allreduce("b")), Full(Allreduce("c"))}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("a")), Full(Allreduce("b", {9})), Full(Allreduce("c"))}));
  const auto at_once = desk.Take(0);
  ASSERT_EQ(at_once.size(), size_t{1});
  ASSERT_EQ(at_once[0].decisions.size(), size_t{2});
  EXPECT_EQ(at_once[0].decisions[0].error, "");
  EXPECT_EQ(at_once[0].decisions[1].name, "b");
  EXPECT_EQ(at_once[0].decisions[1].id, kNoId);
  EXPECT_FALSE(at_once[0].decisions[1].error.empty());
  EXPECT_EQ(desk.TakeOne().name, "c");
}

std::string Refused(std::vector<std::vector<Announcement>> said, uint64_t urgent = 0) {
  SequencerOptions options;
  options.members = {4, 9};
  Desk desk(2, options);
  const Status first0 = desk.Say(0, {Full(Allreduce("w")), Full(Allreduce(""), 1)});
  if (!first0.ok()) return first0.message();
  const Status first1 = desk.Say(1, {Full(Allreduce("w")), Full(Allreduce(""), 1)});
  if (!first1.ok()) return first1.message();
  desk.Take();
  Status status;
  for (auto& announcements : said) {
    if (status.ok()) status = desk.Say(1, std::move(announcements), urgent);
  }
  return status.message();
}

TEST(Sequencer, CorruptAnnouncementsNameTheRank) {
  const std::string who = "corrupt announcement: rank 9 ";
  EXPECT_EQ(Refused({{Cached(2)}}), who + "announced the unknown id 2");
  EXPECT_EQ(Refused({{Cached(0)}, {Cached(0)}}), who + "announced 'w' twice");
  EXPECT_EQ(Refused({{Cached(0)}, {Full(Allreduce("w", {7}))}}), who + "announced 'w' twice");
  EXPECT_EQ(Refused({{Cached(1, 1)}}), who + "announced unnamed operation 1 after 1");
  EXPECT_EQ(Refused({{Cached(1, 3)}}), who + "announced unnamed operation 3 after 1");
  EXPECT_EQ(Refused({{Cached(0, 2)}}), who + "announced id 0 with the wrong kind of key");
  EXPECT_EQ(Refused({{Cached(1)}}), who + "announced id 1 with the wrong kind of key");
  EXPECT_EQ(Refused({{Full(Allreduce("w"), 2)}}),
            who + "announced both a name and an ordinal, or neither");
  EXPECT_EQ(Refused({{Cached(0, 0, {1})}}),
            who + "announced 1 sizes instead of 0 with an allreduce");
  Announcement sized = Full(Alltoall("a", {3}, {2, 1}));
  EXPECT_EQ(Refused({{sized}}), "");
  sized.sizes = {2, 1};
  EXPECT_EQ(Refused({{sized}}), who + "announced 2 sizes instead of 0 with an alltoall");
  EXPECT_EQ(Refused({{Cached(0)}}, 4), who + "is blocked on more operations than it has announced");
  EXPECT_EQ(Refused({{Cached(0), Cached(1, 2)}}, 4), "");
  Desk desk(2);
  EXPECT_FALSE(desk.Say(2, {}).ok());
  EXPECT_FALSE(desk.Say(-1, {}).ok());
}

TEST(Sequencer, PendingNamesTheAbsent) {
  SequencerOptions options;
  options.members = {3, 5, 8};
  Desk desk(3, options);
  ASSERT_OK(desk.Say(1, {Full(Barrier(), 1)}, 0, 50));
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w")), Full(Allreduce("done"))}, 0, 10));
  ASSERT_OK(desk.Say(2, {Full(Allreduce("w")), Full(Allreduce("done"))}, 0, 20));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("done"))}, 0, 60));
  const auto pending = desk.root.Pending(100);
  ASSERT_EQ(pending.size(), size_t{2});
  EXPECT_EQ(pending[0].name, "w");
  EXPECT_EQ(pending[0].since, 10);
  EXPECT_TRUE(pending[0].ready == (Members{3, 8}.ranks()));
  EXPECT_TRUE(pending[0].absent == Members{5}.ranks());
  EXPECT_EQ(pending[1].name, "barrier.noname.1");
  EXPECT_EQ(pending[1].kind, OpKind::kBarrier);
}

}  // namespace
}  // namespace hvd::negotiate
