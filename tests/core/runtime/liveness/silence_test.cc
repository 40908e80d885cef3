// Who has been silent for too long, at times that the test makes up.

#include "runtime/liveness/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "check.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int64_t kSecondUs = 1000000;
constexpr uint64_t kHome = 77;
constexpr int kTimeout = 6;
constexpr int kStoppedLimit = 60;

// Rank 0, which watches rank 1 on its host and rank 2 on another one.
struct Watching {
  Watching() {
    for (const int rank : {1, 2}) {
      const auto [near, far] = UnixPair();
      others.emplace_back(far);
      const Link link{near, GlobalRank(rank), LinkRole::kWatch, {}, {}};
      peers.push_back(
          std::make_unique<WatchedPeer>(link, Descriptor(near), job.Describe(link.peer), kHome));
      peers.back()->heard_us = begin;
    }
  }

  // The first second at which somebody is lost, and who; heartbeats are sent each second.
  std::pair<int, std::optional<Cause>> Until(int seconds, int step = 1) {
    for (int second = step; second <= seconds; second += step) {
      if (auto cause = check.Look(begin + second * kSecondUs)) return {second, cause};
    }
    return {seconds, std::nullopt};
  }

  const int64_t begin = NowMicros();
  Topology job{{0, 0, 1}, true, {"red", "blue"}};
  std::vector<Descriptor> others;
  Peers peers;
  Departures departures{3};
  StoppedRanks stopped{3, kTimeout* kSecondUs};
  Diagnosis diagnosis{GlobalRank(0), &job, &peers, &departures,
                      [](const Departure&, bool) { return ""; }};
  SilenceCheck check{
      {kTimeout, kStoppedLimit}, &job, &peers, &departures, &stopped, nullptr, &diagnosis};
};

// A process that does nothing, or is stopped.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ != 0) return;
    while (true) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Stop() const {
    kill(pid_, SIGSTOP);
    int status;
    waitpid(pid_, &status, WUNTRACED);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST(SilenceCheck, APeerOfWhichNothingIsKnownGetsTheTimeout) {
  Watching watching;
  watching.peers[0]->departed = true;
  const auto [second, cause] = watching.Until(100);
  ASSERT_TRUE(cause);
  EXPECT_EQ(second, kTimeout + 1);
  EXPECT_TRUE(cause->kind == CauseKind::kSilent && cause->culprit == GlobalRank(2));
}

TEST(SilenceCheck, AStoppedProcessIsWaitedForUpToALimitOfItsOwn) {
  const Child child;
  child.Stop();
  Watching watching;
  watching.peers[0]->pid = child.pid();
  watching.peers[0]->home = kHome;
  watching.peers[1]->departed = true;
  const auto [second, cause] = watching.Until(100);
  ASSERT_TRUE(cause);
  EXPECT_EQ(second, kStoppedLimit + 1);
  EXPECT_TRUE(cause->reason.str().find("(process is stopped)") != std::string::npos);
  EXPECT_TRUE(watching.stopped.Has(GlobalRank(1), watching.begin + second * kSecondUs));
}

TEST(SilenceCheck, AnotherRankOfItsHostMayTellThatAPeerIsStopped) {
  Watching watching;
  watching.peers[0]->departed = true;
  for (int second = 1; second <= 30; ++second) {
    const int64_t now = watching.begin + second * kSecondUs;
    StoppedRanks told(3, kTimeout * kSecondUs);
    told.Add(GlobalRank(2), now - kSecondUs);
    watching.stopped.Merge(told.Encode(now), now);
    EXPECT_FALSE(watching.check.Look(now));
  }
  // Nobody says so any more.
  const int64_t later = watching.begin + (30 + kTimeout) * kSecondUs;
  std::optional<Cause> cause;
  for (int second = 31; second <= 30 + kTimeout && !cause; ++second)
    cause = watching.check.Look(watching.begin + second * kSecondUs);
  EXPECT_TRUE(cause && cause->culprit == GlobalRank(2));
  EXPECT_EQ(watching.stopped.Encode(later), "");
}

// As after a pause of the whole machine, when all wake together.
TEST(SilenceCheck, WhoDidNotRunItselfBlamesNobody) {
  Watching watching;
  EXPECT_FALSE(watching.check.Look(watching.begin + kSecondUs));
  EXPECT_FALSE(watching.check.Look(watching.begin + 1000 * kSecondUs));
  EXPECT_FALSE(watching.check.Look(watching.begin + (1000 + kTimeout / 2) * kSecondUs));
}

TEST(StoppedRanks, HaveNoMoreRanksThanTheJobAndPass) {
  StoppedRanks stopped(3, 10 * kSecondUs);
  EXPECT_FALSE(stopped.Merge(std::string(4000, '\xff'), 1));
  EXPECT_FALSE(stopped.Merge(std::string("\5\0\0\0\0\0\0\0", 8), 1));
  EXPECT_TRUE(stopped.Add(GlobalRank(2), kSecondUs));
  EXPECT_FALSE(stopped.Add(GlobalRank(2), 2 * kSecondUs));
  EXPECT_TRUE(stopped.Has(GlobalRank(2), 11 * kSecondUs));
  EXPECT_FALSE(stopped.Has(GlobalRank(2), 12 * kSecondUs));
}

// As many as the largest hosts have.
TEST(StoppedRanks, NewsOfAllOfAHostArriveInAFewHeartbeats) {
  constexpr int kRanks = 192;
  StoppedRanks seen(kRanks + 1, kTimeout * kSecondUs);
  StoppedRanks heard(kRanks + 1, kTimeout * kSecondUs);
  for (int rank = 0; rank < kRanks; ++rank) seen.Add(GlobalRank(rank), kSecondUs);
  const int64_t later = 3 * kSecondUs;
  for (int beat = 0; beat < 3; ++beat) heard.Merge(seen.Encode(later), later);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(heard.Has(GlobalRank(rank), later));
  EXPECT_FALSE(heard.Has(GlobalRank(kRanks), later));
}

// On a network that takes half a second, what one was told seems as fresh as when it told of it.
TEST(StoppedRanks, WhatNobodySeesAnyMorePassesThoughTwoTellEachOther) {
  StoppedRanks one(3, kTimeout * kSecondUs);
  StoppedRanks other(3, kTimeout * kSecondUs);
  one.Add(GlobalRank(2), 0);
  for (int64_t half = 1; half < 200; ++half) {
    const int64_t now = half * kSecondUs / 2;
    StoppedRanks& tells = half % 2 != 0 ? one : other;
    StoppedRanks& hears = half % 2 != 0 ? other : one;
    hears.Merge(tells.Encode(now), now + kSecondUs / 2);
  }
  EXPECT_FALSE(one.Has(GlobalRank(2), 100 * kSecondUs));
  EXPECT_FALSE(other.Has(GlobalRank(2), 100 * kSecondUs));
}

TEST(ProcessState, AFrozenControlGroupIsSeen) {
  std::string root = std::filesystem::temp_directory_path() / "hvd_groups_XXXXXX";
  ASSERT_TRUE(mkdtemp(root.data()) != nullptr);
  std::filesystem::create_directories(root + "/pod/box");
  std::filesystem::create_directories(root + "/freezer/box");
  std::ofstream(root + "/pod/box/cgroup.events") << "populated 1\nfrozen 1\n";
  std::ofstream(root + "/pod/cgroup.events") << "populated 1\nfrozen 0\n";
  std::ofstream(root + "/freezer/box/freezer.state") << "FROZEN\n";
  EXPECT_TRUE(IsFrozen("0::/pod/box", root));
  EXPECT_FALSE(IsFrozen("0::/pod", root));
  EXPECT_TRUE(IsFrozen("7:freezer:/box", root));
  EXPECT_FALSE(IsFrozen("7:cpu:/box", root));
  EXPECT_FALSE(IsFrozen("", root));
  std::filesystem::remove_all(root);
}

// A peer that reads nothing for long, as one that is stopped, still answers: its host does.
TEST(LinkSigns, OnlyWhatIsNotAcknowledgedIsOwed) {
  const auto [fd, other] = TcpPair();
  const Descriptor near(fd);
  const Descriptor far(other);
  LinkSigns signs(kTimeout);
  signs.Add(near.get(), GlobalRank(1), LinkRole::kData);
  const std::string bytes(1 << 16, 'x');
  while (send(near.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  for (int look = 0; look < 20; ++look) {
    usleep(50000);
    const auto seen = signs.Look(NowMicros(), false);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_TRUE(seen[0].peer == GlobalRank(1) && seen[0].owed_us < 5 * kSecondUs);
    EXPECT_FALSE(look > 0 && seen[0].arrived);
  }
  EXPECT_EQ(send(far.get(), "y", 1, 0), 1);
  usleep(50000);
  EXPECT_TRUE(signs.Look(NowMicros(), false)[0].arrived);
  signs.Remove(near.get());
  EXPECT_TRUE(signs.Look(NowMicros(), false).empty());
}

// The system refuses times that are longer than it can keep.
TEST(LinkSigns, IdleLinksAreProbedHoweverLongTheTimeout) {
  const auto [fd, other] = TcpPair();
  const Descriptor near(fd);
  const Descriptor far(other);
  LinkSigns signs(1e6);
  signs.Add(near.get(), GlobalRank(1), LinkRole::kData);
  for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL}) {
    int seconds = 0;
    socklen_t bytes = sizeof seconds;
    ASSERT_EQ(getsockopt(near.get(), IPPROTO_TCP, option, &seconds, &bytes), 0);
    EXPECT_EQ(seconds, 32767);
  }
}

int OptionOf(int socket, int option) {
  int value = -1;
  socklen_t bytes = sizeof value;
  return getsockopt(socket, IPPROTO_TCP, option, &value, &bytes) == 0 ? value : -1;
}

// A full queue on the way loses them several times; what carries data keeps what its system has.
TEST(LinkSigns, SignsOfLifeAreSentAgainSoon) {
  for (const LinkRole role : {LinkRole::kWatch, LinkRole::kControl, LinkRole::kData}) {
    const auto [fd, other] = TcpPair();
    const Descriptor near(fd);
    const Descriptor far(other);
    LinkSigns signs(kTimeout);
    signs.Add(near.get(), GlobalRank(1), role);
    EXPECT_EQ(OptionOf(near.get(), TCP_THIN_LINEAR_TIMEOUTS), role == LinkRole::kData ? 0 : 1);
  }
}

}  // namespace
}  // namespace hvd::test
