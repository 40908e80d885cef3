// Watchers that have links to a few ranks only, and what they know of the others all the same.

#include "runtime/liveness/watcher.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/topology.h"
#include "base/tree.h"
#include "check.h"
#include "runtime/liveness/blocked.h"
#include "runtime/liveness/departures.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimitUs = 20000000;

template <typename Condition>
bool Becomes(const Condition& condition) {
  const int64_t deadline = NowMicros() + kLimitUs;
  while (!condition() && NowMicros() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return condition();
}

using Pairs = std::set<std::pair<int, int>>;

// Around a circle at the distances 1, 2, 4, ..., as bootstrap links them.
Pairs Circle(int size) {
  Pairs pairs;
  for (int rank = 0; rank < size; ++rank) {
    for (int step = 1; step < size; step *= 2) {
      const int other = (rank + step) % size;
      pairs.insert(std::minmax(rank, other));
    }
  }
  return pairs;
}

struct Watched {
  AbortCell abort;
  std::atomic<int64_t> blocked_us{0};
  std::atomic<int> shown{0};
  std::mutex mutex;
  std::set<int> departed;            // that it was asked about; guarded by mutex
  std::set<int> abandoned;           // likewise
  std::unique_ptr<Watcher> watcher;  // last: its thread calls back until it is destroyed

  void Ask(const Departure& departure) {
    const std::lock_guard<std::mutex> lock(mutex);
    departed.insert(departure.rank.value());
    if (departure.abandoned) abandoned.insert(departure.rank.value());
  }
  size_t Departed() {
    const std::lock_guard<std::mutex> lock(mutex);
    return departed.size();
  }
};

class Round {
 public:
  Round(int size, const Pairs& pairs) : ranks_(size), duplicates_(size) {
    std::vector<std::vector<Link>> links(size);
    for (const auto& [a, b] : pairs) {
      const auto [of_a, of_b] = UnixPair();
      links[a].push_back({of_a, GlobalRank(b), LinkRole::kWatch, TestKey(a, b), TestKey(b, a)});
      links[b].push_back({of_b, GlobalRank(a), LinkRole::kWatch, TestKey(b, a), TestKey(a, b)});
      duplicates_[a].emplace_back(dup(of_a));
      duplicates_[b].emplace_back(dup(of_b));
    }
    for (int rank = 0; rank < size; ++rank) Start(rank, size, std::move(links[rank]));
  }

  Watched& operator[](int rank) { return ranks_[rank]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // As if the rank were killed.
  void Cut(int rank) {
    for (const Descriptor& fd : duplicates_[rank]) shutdown(fd.get(), SHUT_WR);
  }

 private:
  void Start(int rank, int size, std::vector<Link> links) {
    Watched& own = ranks_[rank];
    WatcherOptions options;
    options.rank = GlobalRank(rank);
    options.size = size;
    options.links = std::move(links);
    options.heartbeat_seconds = 0.05;
    options.patience.peer_seconds = 60;
    options.stuck_without = [&own](const Departure& departure, bool) {
      own.Ask(departure);
      return std::string();
    };
    options.on_heartbeat = [] {};
    options.blocked_us = [&own] { return own.blocked_us.load(); };
    options.on_show_stacks = [&own] { ++own.shown; };
    options.on_abort = [] {};
    own.watcher = std::make_unique<Watcher>(std::move(options), &own.abort);
    ASSERT_OK(own.watcher->Start());
  }

  std::vector<Watched> ranks_;
  std::vector<std::vector<Descriptor>> duplicates_;
};

TEST(Watcher, ADeathIsKnownToAllWithinASecond) {
  for (const int size : {12, 33}) {
    Round circle(size, Circle(size));
    const int victim = size / 2;
    const int64_t begin = NowMicros();
    circle.Cut(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      EXPECT_TRUE(Becomes([&] { return circle[rank].abort.is_set(); }));
      EXPECT_EQ(circle[rank].abort.cause().culprit, GlobalRank(victim));
    }
    EXPECT_TRUE(NowMicros() - begin < 1000000);
  }
}

// Those that have no link to the leavers learn of them, and how they left.
TEST(Watcher, DeparturesArePassedOn) {
  constexpr int kSize = 12;
  Round circle(kSize, Circle(kSize));
  circle[5].watcher->Stop(true);
  circle[6].watcher->Stop(false);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == 5 || rank == 6) continue;
    EXPECT_TRUE(Becomes([&] { return circle[rank].Departed() == 2; }));
    EXPECT_TRUE(circle[rank].departed == std::set<int>({5, 6}));
    EXPECT_TRUE(circle[rank].abandoned == std::set<int>({5}));
    EXPECT_FALSE(circle[rank].abort.is_set());
  }
}

TEST(Watcher, StacksAreShownOnceByEverybody) {
  constexpr int kSize = 20;
  Round circle(kSize, Circle(kSize));
  for (int times = 1; times <= 3; ++times) {
    circle[7].watcher->AskForStacks();
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != 7) EXPECT_TRUE(Becomes([&] { return circle[rank].shown == times; }));
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(circle[rank].shown.load(), rank == 7 ? 0 : 3);
}

// Everybody is blocked, then one far away works, then all are blocked again.
TEST(Watcher, EverybodyBlockedIsKnownWithoutALinkToEverybody) {
  constexpr int kSize = 21;
  Round circle(kSize, Circle(kSize));
  const auto all_know = [&](int64_t least) {
    return Becomes([&] {
      for (int rank = 0; rank < kSize; ++rank) {
        if (circle[rank].watcher->EverybodyBlockedMicros() != least) return false;
      }
      return true;
    });
  };
  for (int rank = 0; rank < kSize; ++rank) circle[rank].blocked_us = 1000 + rank;
  EXPECT_TRUE(all_know(1000));
  circle[15].blocked_us = 0;
  EXPECT_TRUE(all_know(0));
  circle[15].blocked_us = 900;
  EXPECT_TRUE(all_know(900));
  circle[19].watcher->Stop();  // nobody is below it
  circle[0].blocked_us = 800;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == 19) continue;
    EXPECT_TRUE(Becomes([&] { return circle[rank].watcher->EverybodyBlockedMicros() == 800; }));
  }
  circle[16].watcher->Stop();  // nothing is known of those below it any more
  EXPECT_TRUE(Becomes([&] { return circle[0].watcher->EverybodyBlockedMicros() == 0; }));
}

TEST(Watcher, BlockedRanksAreNeverOverrated) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int size = 2 + static_cast<int>(random() % 40);
    const Pairs pairs = Circle(size);
    std::vector<int64_t> own(size);
    for (int64_t& us : own) us = static_cast<int64_t>(random() % 5);
    const int64_t least = *std::min_element(own.begin(), own.end());
    std::vector<BlockedNews> told(size);
    for (int step = 0; step < 400; ++step) {
      const int rank = static_cast<int>(random() % static_cast<uint32_t>(size));
      std::vector<BlockedPeer> peers;
      for (int other = 0; other < size; ++other) {
        if (pairs.count(std::minmax(rank, other)) != 0)
          peers.push_back({other, false, told[other]});
      }
      told[rank] = Combine(rank, size, own[rank], peers);
      EXPECT_TRUE(told[rank].all <= least);
    }
  }
}

TEST(Departures, UniteInAnyOrder) {
  Departures one(100);
  Departures other(100);
  EXPECT_TRUE(one.Add({GlobalRank(3), 10, true}));
  EXPECT_FALSE(one.Add({GlobalRank(3), 20, false}));
  EXPECT_FALSE(one.Add({GlobalRank(100), 20, false}));
  EXPECT_FALSE(one.Add({GlobalRank(-1), 20, false}));
  EXPECT_TRUE(other.Add({GlobalRank(99), 10, false}));
  EXPECT_TRUE(other.Merge(one.Encode(), 30));
  EXPECT_FALSE(other.Merge(one.Encode(), 40));
  EXPECT_TRUE(one.Merge(other.Encode(), 50));
  EXPECT_EQ(one.Encode(), other.Encode());
  EXPECT_TRUE(other.Has(GlobalRank(3)) && other.Find(GlobalRank(3))->abandoned &&
              other.Find(GlobalRank(3))->since_us == 30);
  EXPECT_TRUE(one.Has(GlobalRank(99)) && !one.Find(GlobalRank(99))->abandoned);
  EXPECT_EQ(one.all().size(), 2u);
}

// Bytes of a peer may say anything: never more ranks than there are.
TEST(Departures, HaveNoMoreRanksThanTheJob) {
  Departures departures(5);
  EXPECT_TRUE(departures.Merge(std::string(4000, '\xff'), 1));
  EXPECT_EQ(departures.all().size(), 5u);
  EXPECT_EQ(departures.Encode().size(), 2u);
  EXPECT_FALSE(departures.Merge("", 1));
}

// A process that was stopped for long enough to fill its links hears from its peers again when it
// goes on.
TEST(WatchedPeer, IsHeardAgainWhenThePeerReadsAgain) {
  const auto [fd, other] = UnixPair();
  WatchedPeer speaker({fd, GlobalRank(1), LinkRole::kWatch, TestKey(0, 1), TestKey(1, 0)},
                      Descriptor(fd), "rank", 0);
  WatchedPeer stopped({other, GlobalRank(0), LinkRole::kWatch, TestKey(1, 0), TestKey(0, 1)},
                      Descriptor(other), "rank", 0);
  WatchNews news;
  for (int i = 0; i < 2000; ++i) speaker.Send(news);
  EXPECT_FALSE(speaker.flushed());
  WatchNews heard;
  while (stopped.Receive(&heard) == WatchedPeer::Heard::kNews) continue;
  news.pid = 4711;
  speaker.Send(news);
  EXPECT_TRUE(speaker.flushed());
  WatchedPeer::Heard last = WatchedPeer::Heard::kNews;
  while ((last = stopped.Receive(&heard)) == WatchedPeer::Heard::kNews) continue;
  EXPECT_TRUE(last == WatchedPeer::Heard::kNothing);
  EXPECT_EQ(heard.pid, 4711);
}

// A rank that has computed until now and begins to wait has not been blocked before, whenever it is
// asked.
TEST(Blocked, BeginsWithTheWait) {
  constexpr int64_t kComputesUs = 1000;
  Blocked blocked;
  std::atomic<int64_t> clock{kComputesUs};
  std::atomic<bool> ends{false};
  std::thread program([&] {
    for (int i = 0; i < 2000000; ++i) {
      clock += kComputesUs;
      blocked.Enter(clock);
      blocked.Leave(clock);
    }
    ends = true;
  });
  int64_t longest = 0;
  while (!ends) longest = std::max(longest, blocked.Micros(clock));
  program.join();
  EXPECT_EQ(longest, 0);
}

// A pid of another host, or of another process namespace, is some other process here, or none.
TEST(WatchedPeer, AsksTheKernelOnlyAboutProcessesOfItsOwnNamespace) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  const auto [fd, other] = UnixPair();
  WatchedPeer peer({fd, GlobalRank(1), LinkRole::kWatch, {}, {}}, Descriptor(fd), "rank 1", 77);
  peer.pid = child;
  peer.home = 77;
  EXPECT_TRUE(peer.Lives());
  for (const uint64_t elsewhere : {uint64_t{78}, uint64_t{0}}) {
    peer.home = elsewhere;
    EXPECT_FALSE(peer.Lives());
    EXPECT_TRUE(peer.State() == ProcessState::kUnknown);
  }
  const int again = dup(fd);
  WatchedPeer of_nowhere({again, GlobalRank(1), LinkRole::kWatch, {}, {}}, Descriptor(again),
                         "rank 1", 0);
  of_nowhere.pid = child;
  EXPECT_TRUE(of_nowhere.State() == ProcessState::kUnknown);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(other);
}

TEST(HostIdentity, IsOneForAProcessNamespaceOfABoot) {
  EXPECT_TRUE(HostIdentity() != 0);
  EXPECT_EQ(HostIdentity(), HostIdentity());
  std::string root = std::filesystem::temp_directory_path() / "hvd_identity_XXXXXX";
  ASSERT_TRUE(mkdtemp(root.data()) != nullptr);
  EXPECT_EQ(HostIdentity(root), 0u);
  const auto boot = [&](const std::string& id) {
    std::filesystem::create_directories(root + "/proc/sys/kernel/random");
    std::ofstream(root + "/proc/sys/kernel/random/boot_id") << id << "\n";
    return HostIdentity(root);
  };
  EXPECT_EQ(boot("one"), 0u);  // no namespace
  std::filesystem::create_directories(root + "/proc/self/ns");
  std::ofstream(root + "/proc/self/ns/pid") << "";
  const uint64_t first = boot("one");
  EXPECT_TRUE(first != 0 && first != HostIdentity());
  EXPECT_TRUE(boot("two") != first);
  std::ofstream(root + "/proc/self/ns/other") << "";
  std::filesystem::rename(root + "/proc/self/ns/other", root + "/proc/self/ns/pid");
  EXPECT_TRUE(boot("one") != first);
  std::filesystem::remove_all(root);
}

TEST(Tree, EveryPositionIsBelowTheRootOnce) {
  for (int size = 1; size < 300; ++size) {
    std::vector<int> parents(size, -1);
    for (int position = 0; position < size; ++position) {
      const Tree tree(position, size);
      int end = position + 1;
      for (const int child : tree.Children()) {
        EXPECT_EQ(child, end);  // subtrees are runs that follow one another
        end = tree.End(child);
        EXPECT_EQ(parents[child], -1);
        parents[child] = position;
        EXPECT_TRUE(Tree(child, size).parent() == position && tree.IsParentOf(child));
        EXPECT_EQ(Tree(child, size).depth(), tree.depth() + 1);
      }
      EXPECT_EQ(end, tree.End(position));
    }
    EXPECT_EQ(std::count(parents.begin(), parents.end(), -1), 1);
  }
}

}  // namespace
}  // namespace hvd::test
