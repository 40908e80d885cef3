// What another rank sends is checked against what this rank knows, and every refusal names the
// sender and says what to do.

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "check.h"
#include "negotiate/bytes/wire.h"
#include "runtime/progress/victim.h"

namespace hvd::test {
namespace {

using negotiate::Request;

std::string ResponseWith(const std::function<void(negotiate::Response*)>& change) {
  negotiate::Response response;
  response.number = 1;
  negotiate::Decision& decision = response.decisions.emplace_back();
  decision.id = 0;
  decision.name = "w";
  decision.sizes = {1, 4, 2};
  change(&response);
  std::string bytes;
  negotiate::Encode(response, &bytes);
  return bytes;
}

std::string AnnouncementWith(const std::function<void(negotiate::AnnounceMessage*)>& change) {
  negotiate::AnnounceMessage message;
  negotiate::Announcement& announcement = message.announcements.emplace_back();
  announcement.request = RequestOf(OpKind::kAllgather, {4});
  announcement.sizes = {4};
  change(&message);
  std::string bytes;
  negotiate::Encode(message, &bytes);
  return bytes;
}

void ExpectRefusal(const Status& status, const Victim& victim, int sender, const char* what) {
  const std::string rank = "rank " + std::to_string(sender);
  const bool fine = status.code() == Code::kAborted && Contains(status.message(), rank + " sent") &&
                    Contains(status.message(), "machine of " + rank) &&
                    Contains(status.message(), "restart the job") &&
                    victim.culprit() == GlobalRank(sender);
  if (!EXPECT_TRUE(fine)) std::printf("  %s: %s\n", what, status.message().c_str());
}

TEST(Refusals, OfAResponseNameTheSequencersRank) {
  using negotiate::Response;
  const std::vector<std::pair<const char*, std::string>> forged = {
      {"nothing", ""},
      {"short", "abc"},
      {"no version", std::string("\0", 1)},
      {"version", "\x09\x01"},
      {"trailing", ResponseWith([](Response*) {}) + "x"},
      {"number", ResponseWith([](Response* r) { r->number = 2; })},
      {"own row larger", ResponseWith([](Response* r) {
         r->decisions[0].sizes = {1, 16384, 2};
       })},
      {"own row smaller", ResponseWith([](Response* r) {
         r->decisions[0].sizes = {1, 3, 2};
       })},
      {"sum", ResponseWith([](Response* r) {
         r->decisions[0].sizes = {INT64_MAX / 4, 4, INT64_MAX / 4};
       })},
      {"short table", ResponseWith([](Response* r) { r->decisions[0].sizes = {4}; })},
      {"no table", ResponseWith([](Response* r) { r->decisions[0].sizes.clear(); })},
      {"unknown name", ResponseWith([](Response* r) { r->decisions[0].name = "v"; })},
      {"unknown id", ResponseWith([](Response* r) {
         r->decisions[0].name.clear();
         r->decisions[0].known = true;
         r->decisions[0].id = 7;
       })},
      {"an id for what fails", ResponseWith([](Response* r) {
         r->decisions[0].sizes.clear();
         r->decisions[0].error = "it failed";
       })},
      {"id out of order", ResponseWith([](Response* r) { r->decisions[0].id = 7; })},
      {"unknown ordinal", ResponseWith([](Response* r) {
         r->decisions[0].name.clear();
         r->decisions[0].ordinal = 3;
       })},
      {"twice", ResponseWith([](Response* r) { r->decisions.push_back(r->decisions[0]); })},
      {"end of no join", ResponseWith([](Response* r) { r->last_joined = GlobalRank(3); })},
  };
  for (const auto& [what, bytes] : forged) {
    Victim victim(5);
    ExpectRefusal(victim.Hear(bytes), victim, 3, what);
  }
  Victim sound(5);
  ASSERT_OK(sound.Hear(ResponseWith([](Response*) {})));
}

// Rank 6 hears rank 3 by way of rank 5, and cannot know which of them is wrong; but what rank 5
// sees nothing in, it does not pass on.
TEST(Refusals, OfAResponseThatWasPassedOnNameBoth) {
  const Members members = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const auto rows = [](int64_t own) {
    return ResponseWith([own](negotiate::Response* r) {
      r->decisions[0].sizes.assign(12, 1);
      r->decisions[0].sizes[3] = own;
    });
  };
  Victim victim(6, OpKind::kAllgather, members);
  const Status status = victim.Hear(rows(3));
  EXPECT_TRUE(Contains(status.message(), "rank 3 decided what cannot be right, or rank 5"));
  EXPECT_TRUE(Contains(status.message(), "restart the job"));
  EXPECT_TRUE(victim.culprit() == ProcessSet::kUnknownRank);
  Victim other(6, OpKind::kAllgather, members);
  ExpectRefusal(other.Hear("short"), other, 5, "short");
  Victim next(5, OpKind::kAllgather, members);
  ExpectRefusal(next.Hear(rows(3)), next, 3, "root");
  Victim sound(6, OpKind::kAllgather, members);
  ASSERT_OK(sound.Hear(rows(4)));
}

// A rank that has joined runs what others describe.
TEST(Refusals, OfAnOperationThatNoRankMayAskForNameTheSequencersRank) {
  const auto told = [](const std::function<void(Request*)>& change) {
    return ResponseWith([&](negotiate::Response* r) {
      negotiate::Decision& decision = r->decisions[0];
      decision.name = "other";
      decision.partial = true;
      decision.sizes.clear();
      decision.request = RequestOf(OpKind::kAllreduce, {4});
      decision.request->name = "other";
      change(&*decision.request);
    });
  };
  const std::vector<std::pair<const char*, std::string>> forged = {
      {"root", told([](Request* r) {
         r->kind = OpKind::kBroadcast;
         r->root = GlobalRank(4);
       })},
      {"average of bool", told([](Request* r) {
         r->reduce_op = ReduceOp::kAverage;
         r->tensors[0].dtype = DataType::kBool;
       })},
      {"adasum of integers", told([](Request* r) {
         r->reduce_op = ReduceOp::kAdasum;
         r->tensors[0].dtype = DataType::kInt32;
       })},
      {"factor", told([](Request* r) { r->prescale = NAN; })},
      {"no tensors", told([](Request* r) { r->tensors.clear(); })},
      {"too large", told([](Request* r) { r->tensors[0].shape = {int64_t{1} << 60}; })},
  };
  for (const auto& [what, bytes] : forged) {
    Victim victim(5);
    victim.Join();
    ExpectRefusal(victim.Hear(bytes), victim, 3, what);
  }
  Victim sound(5);
  sound.Join();
  ASSERT_OK(sound.Hear(told([](Request*) {})));
}

// Others go on with another operation of that name, or disagree about it, while what this rank
// announced before it joined still runs here.
TEST(Refusals, AreNotOfWhatTakesTheNameOfWhatStillRunsWhereARankHasJoined) {
  const auto second = [](const std::function<void(negotiate::Decision*)>& change) {
    return ResponseWith([&](negotiate::Response* r) {
      r->number = 2;
      r->decisions[0].partial = true;
      r->decisions[0].sizes.clear();
      change(&r->decisions[0]);
    });
  };
  const std::string other = second([](negotiate::Decision* decision) {
    decision->id = 1;
    decision->request = RequestOf(OpKind::kAllreduce, {4});
  });
  const std::string failed = second([](negotiate::Decision* decision) {
    decision->id = negotiate::kNoId;
    decision->error = "the others disagree";
  });
  for (const std::string& bytes : {other, failed}) {
    Victim victim(5);
    victim.Join();
    ASSERT_OK(victim.Hear(ResponseWith([](negotiate::Response*) {})));
    EXPECT_TRUE(!victim.done());
    ASSERT_OK(victim.Hear(bytes));
    EXPECT_TRUE(!victim.done());
  }
}

TEST(Refusals, OfAnAnnouncementNameTheMembersRank) {
  using negotiate::AnnounceMessage;
  const auto first = [](AnnounceMessage* m) -> negotiate::Announcement& {
    return m->announcements[0];
  };
  const std::vector<std::pair<const char*, std::string>> forged = {
      {"nothing", ""},
      {"version", "\x09\x01"},
      {"count", std::string("\x01\x00\x00\xff\xff\xff\xff\x0f", 8)},
      {"trailing", AnnouncementWith([](AnnounceMessage*) {}) + "x"},
      {"unknown id", AnnouncementWith([&](AnnounceMessage* m) { first(m).id = 3; })},
      {"both keys", AnnouncementWith([&](AnnounceMessage* m) { first(m).ordinal = 1; })},
      {"no key", AnnouncementWith([&](AnnounceMessage* m) { first(m).request.name.clear(); })},
      {"ordinal", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request.name.clear();
         first(m).ordinal = 5;
       })},
      {"no sizes", AnnouncementWith([&](AnnounceMessage* m) { first(m).sizes.clear(); })},
      {"huge rows", AnnouncementWith([&](AnnounceMessage* m) { first(m).sizes = {INT64_MAX}; })},
      {"rows without bytes", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request.tensors[0].shape = {4, 0};
         first(m).sizes = {INT64_MAX};
       })},
      {"huge rows of nothing", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request = RequestOf(OpKind::kReducescatter, {0, int64_t{1} << 50});
         first(m).sizes.clear();
       })},
      {"huge tensor", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request.tensors[0].shape = {4, INT64_MAX};
       })},
      {"splits", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request = RequestOf(OpKind::kAlltoall, {4});
         first(m).sizes = {1, 2, 1};
       })},
      {"huge rows of an alltoall", AnnouncementWith([&](AnnounceMessage* m) {
         first(m).request = RequestOf(OpKind::kAlltoall, {0, int64_t{1} << 50});
         first(m).sizes.clear();
       })},
      {"twice", AnnouncementWith(
                    [](AnnounceMessage* m) { m->announcements.push_back(m->announcements[0]); })},
      {"urgent", AnnouncementWith([](AnnounceMessage* m) { m->some_urgent = m->all_urgent = 9; })},
  };
  for (const auto& [what, bytes] : forged) {
    Victim victim(3);
    ExpectRefusal(victim.Hear(bytes), victim, 7, what);
  }
  Victim joined(3);
  ASSERT_OK(joined.Hear(AnnouncementWith([](AnnounceMessage* m) {
    m->announcements.clear();
    m->joins = true;
  })));
  ExpectRefusal(joined.Hear(AnnouncementWith([](AnnounceMessage*) {})), joined, 7, "after joining");
  Victim sound(3);
  ASSERT_OK(sound.Hear(AnnouncementWith([](AnnounceMessage*) {})));
}

// An unnamed operation is found by its number, whatever the id says.
TEST(Refusals, OfAnIdThatMeansAnotherOperation) {
  const auto told = [](uint64_t number, uint32_t id, bool known) {
    return ResponseWith([&](negotiate::Response* r) {
      r->number = number;
      r->decisions[0].name.clear();
      r->decisions[0].ordinal = number;
      r->decisions[0].id = id;
      r->decisions[0].known = known;
      r->decisions[0].sizes.clear();
    });
  };
  Victim victim(5);
  victim.Submit(OpKind::kAllreduce);
  victim.Submit(OpKind::kBroadcast);
  ASSERT_OK(victim.Hear(told(1, 0, false)));
  ExpectRefusal(victim.Hear(told(2, 0, true)), victim, 3, "id of another");
  Victim unknown(5);
  unknown.Submit(OpKind::kAllreduce);
  ExpectRefusal(unknown.Hear(told(1, 0, true)), unknown, 3, "unknown id");
}

// What is said before an alltoall, which nobody else has seen.
TEST(Refusals, OfCountsNameTheirSender) {
  const auto decided = ResponseWith([](negotiate::Response* r) { r->decisions[0].sizes.clear(); });
  const Sizes sound = {12, 4, 8, 1};  // of 12 bytes, behind 4, none larger than 8: a row
  for (const Sizes& said : {sound, Sizes{12, 4, 8, -1}, Sizes{12, 4, 2, 1}}) {
    Victim victim(5, OpKind::kAlltoall);
    ASSERT_OK(victim.Hear(decided));
    ASSERT_OK(victim.HearCounts(3, sound));
    const Status status = victim.HearCounts(7, said);
    if (said != sound) ExpectRefusal(status, victim, 7, "counts");
    EXPECT_EQ(victim.done(), said == sound);
  }
}

TEST(Refusals, OfAStreamNameItsWriter) {
  Victim victim(3);
  ExpectRefusal(victim.HearCorruptStream(), victim, 7, "stream");
}

}  // namespace
}  // namespace hvd::test
