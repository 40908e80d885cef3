// What a rank announces of what it submits.

#include "runtime/control/member.h"

#include <string>
#include <vector>

#include "check.h"

namespace hvd {
namespace {

constexpr uint32_t kIds = 6;

// Of a set of two, with operations 0 to 4 and an allgather, whose ids it has learned.
struct Alone {
  Alone() : member(0, Members::Everybody(2), Position(1), &queue, &counters, nullptr) {
    negotiate::Response response;
    response.number = 1;
    for (uint32_t id = 0; id < kIds; ++id) {
      Submit(id);
      negotiate::Decision& decision = response.decisions.emplace_back();
      decision.id = id;
      decision.name = NameOf(id);
      if (id + 1 == kIds) decision.sizes = {4, 4};
    }
    (void)Runs();
    EXPECT_EQ(Hear(std::move(response)), "");
  }

  static std::string NameOf(uint32_t id) { return "t" + std::to_string(id); }

  HandlePtr Submit(uint32_t id, bool urgent = false, bool unnamed = false) {
    Entry entry;
    if (id + 1 == kIds) entry.request.kind = OpKind::kAllgather;
    if (!unnamed) entry.request.name = NameOf(id);
    entry.request.tensors.push_back({DataType::kFloat32, {4}});
    entry.urgent = urgent;
    auto handle = std::make_shared<Handle>(std::move(entry));
    EXPECT_EQ(queue.Push(handle).message(), "");
    member.Add(handle);
    return handle;
  }

  // "0-2 4 | 3": what is to be sent now, as ids, "new" or "unnamed"; and how many it is blocked on.
  std::string Runs() {
    negotiate::AnnounceMessage message;
    if (!member.TakeMessage(&message)) return "";
    std::string text;
    for (const negotiate::Announcement& run : message.announcements) {
      const bool known = run.id != negotiate::kNoId;
      text += run.ordinal != 0 ? "unnamed" : known ? std::to_string(run.id) : "new";
      if (run.count > 1) text += "-" + std::to_string(run.id + run.count - 1);
      text += " ";
    }
    return text + "| " + std::to_string(message.all_urgent);
  }

  std::string Hear(negotiate::Response response) {
    std::vector<Decided> decided;
    const Status status = member.Match(std::move(response), &decided);
    for (const Decided& one : decided) {
      names += one.handle->name() + " ";
      queue.Forget(one.handle.get());
    }
    return status.message();
  }
  std::string HearRun(uint64_t number, uint32_t first, uint32_t count) {
    negotiate::Response response;
    response.number = number;
    negotiate::Decision& run = response.decisions.emplace_back();
    run.id = first;
    run.count = count;
    run.known = true;
    return Hear(std::move(response));
  }

  Queue queue;
  Counters counters;
  Member member;
  std::string names;  // of what was decided
};

TEST(Member, AnnouncesConsecutiveIdsAsRuns) {
  Alone alone;
  for (const uint32_t id : {0, 1, 2, 4, 3}) alone.Submit(id, id == 4);
  EXPECT_EQ(alone.Runs(), "0-2 4 3 | 10");
  EXPECT_EQ(alone.HearRun(2, 0, 5), "");
  EXPECT_EQ(alone.Runs(), "");
}

TEST(Member, GoesOnWithNoRunThatIsSent) {
  Alone alone;
  alone.Submit(0);
  EXPECT_EQ(alone.Runs(), "0 | 0");
  alone.Submit(1, true);
  alone.Submit(2);
  EXPECT_EQ(alone.Runs(), "1-2 | 8");
}

TEST(Member, AnnouncesOneByOneWhatHasMoreToTell) {
  Alone alone;
  alone.Submit(3);
  alone.Submit(4);
  alone.Submit(5);
  alone.Submit(0, false, true);
  EXPECT_EQ(alone.Runs(), "3-4 5 unnamed | 0");
}

TEST(Member, CarriesOutEachOfARun) {
  Alone alone;
  alone.names.clear();
  for (const uint32_t id : {1, 0, 2}) alone.Submit(id);
  EXPECT_EQ(alone.HearRun(2, 0, 3), "");
  EXPECT_EQ(alone.names, "t0 t1 t2 ");
}

TEST(Member, RefusesARunThatItHasNotAnnounced) {
  for (const uint32_t count : {4u, negotiate::kNoId}) {
    Alone alone;
    for (const uint32_t id : {0, 1, 2}) alone.Submit(id);
    EXPECT_TRUE(alone.HearRun(2, 0, count).find("which this rank has not announced") !=
                std::string::npos);
  }
}

}  // namespace
}  // namespace hvd
