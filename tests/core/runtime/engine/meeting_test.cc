// Meetings in which a process set is made, where not all goes well.

#include "runtime/engine/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kPatienceUs = 60'000'000;

bool Says(const Status& status, const std::string& text) {
  return !status.ok() && status.message().find(text) != std::string::npos;
}

bool Always() { return true; }

// Makes a set of four ranks, of whom one comes later than another is interrupted; then one more.
void Interrupt(Wires wires, int interrupted, int late, bool all_hear) {
  const bool hosts = wires == Wires::kHosts;
  Cluster cluster(4, wires, {}, {}, hosts ? std::vector<int>{0, 0, 1, 1} : std::vector<int>{});
  cluster.Run([&](Engine& engine, int rank) {
    uint32_t id = 0;
    const bool gives_up = rank == interrupted;
    if (rank == late) usleep(500'000);
    const int64_t begin = NowMicros();
    const Status status =
        engine.AddOwnProcessSet({0, 1, 2, 3}, kPatienceUs, gives_up ? Always : nullptr, &id);
    EXPECT_TRUE(NowMicros() - begin < (gives_up ? 400'000 : 5'000'000));
    if (all_hear || gives_up) {
      EXPECT_TRUE(Says(status, "rank " + std::to_string(interrupted) + " was interrupted"));
    } else {
      EXPECT_TRUE(status.ok());
    }
    ASSERT_OK(Barrier(engine));
    ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2, 3}, kPatienceUs, nullptr, &id));
    ASSERT_OK(Barrier(engine, id));
  });
}

// Whoever it is, and whatever it waits for: it gives up at once, and the others hear of it.
TEST(Meeting, EndsWhenAMemberIsInterrupted) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp, Wires::kHosts}) {
    Interrupt(wires, 0, 1, true);
    for (const int interrupted : {1, 2, 3}) Interrupt(wires, interrupted, 0, true);
  }
}

// Who has said yes cannot take that back.
TEST(Meeting, IsOverForAMemberThatIsInterruptedWhenItHasSaidYes) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp, Wires::kHosts}) Interrupt(wires, 1, 2, false);
}

// Rank 2 gives rank 3 its place, comes later, and waits for rank 0 itself.
TEST(Meeting, BlamesNobodyWhoWaitsToo) {
  Cluster cluster(4, Wires::kHosts, {}, {}, {0, 0, 1, 1});
  cluster.Run([&](Engine& engine, int rank) {
    uint32_t id = 0;
    if (rank == 2) usleep(300'000);
    if (rank > 0) {
      const Status status = engine.AddOwnProcessSet({0, 1, 2, 3}, 400'000, nullptr, &id);
      EXPECT_TRUE(Says(status, "rank 0 has not come within 0.4 s"));
    }
    ASSERT_OK(Barrier(engine));
    ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2, 3}, kPatienceUs, nullptr, &id));
    ASSERT_OK(Barrier(engine, id));
  });
}

// A permuted group has its ranks in an order of its own, which all members must mean.
TEST(Meeting, EndsWithAnErrorOnAllWhenTheOrdersDiffer) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp, Wires::kHosts}) {
    const bool hosts = wires == Wires::kHosts;
    Cluster cluster(4, wires, {}, {}, hosts ? std::vector<int>{0, 0, 1, 1} : std::vector<int>{});
    cluster.Run([&](Engine& engine, int rank) {
      uint32_t id = 0;
      const std::vector<int> order = {2, 0, 1, 3};
      const std::vector<int> other = {0, 2, 1, 3};
      const Status status =
          engine.AddOwnProcessSet(rank == 2 ? other : order, kPatienceUs, nullptr, &id);
      EXPECT_TRUE(Says(status, "process set of ranks 0, 1, 2, 3 cannot be made: rank"));
      EXPECT_TRUE(Says(status, "has its ranks in another order than rank 0"));
      ASSERT_OK(Barrier(engine));
      ASSERT_OK(engine.AddOwnProcessSet(order, kPatienceUs, nullptr, &id));
      ASSERT_OK(Barrier(engine, id));
    });
  }
}

// Rank 1 comes when the first member is about to give up: who has waited for rank 1 needs a moment.
TEST(Meeting, HearsThoseWhoWaitedForALateOne) {
  MeetingOptions options;
  options.rank = GlobalRank(0);
  options.members = Members({0, 1, 2});
  options.companions = Members({0});
  options.firsts = {GlobalRank(0), GlobalRank(1)};
  options.timeout_us = 200'000;
  options.number = [] { return uint64_t{0}; };
  options.name = [](uint32_t* id) { return *id = 42, Status::Ok(); };
  options.may_have_named = [](uint32_t) { return true; };
  options.reserve = [](uint32_t, std::string*) { return Status::Ok(); };
  options.prepare = [](uint32_t, const std::string&) { return Status::Ok(); };
  options.discard = [](uint32_t) {};
  options.close = [](const std::string&) {};
  std::string well;
  int64_t first_us = 0;
  int64_t next_us = 0;
  options.exchange = [&](const PeerOperation& peer, std::string* note, int64_t deadline_us) {
    if (peer.sends) return well = *note, Status::Ok();
    (peer.rank == GlobalRank(1) ? first_us : next_us) = deadline_us;
    if (peer.rank == GlobalRank(1))
      usleep(static_cast<useconds_t>(std::max<int64_t>(0, deadline_us - NowMicros())));
    return *note = well, Status::Ok();
  };
  uint32_t id = 0;
  ASSERT_OK(Meet(options, &id));
  EXPECT_TRUE(next_us > first_us + 10'000);
}

}  // namespace
}  // namespace hvd::test
