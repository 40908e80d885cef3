// Engines that begin with watch links alone and get the others when they want them.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "cluster.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int kSize = 4;

// A job over links, and who makes them: a pair of sockets when the first of both ends asks.
class Job {
 public:
  explicit Job(Config config = {}) : config_(config), links_(Mesh(kSize, UnixPair)) {
    for (std::vector<Link>& links : links_) {
      for (Link& link : links) link.role = LinkRole::kWatch;
    }
  }

  Status Make(int rank, std::unique_ptr<Engine>* engine) {
    EngineOptions options;
    options.rank = rank;
    options.size = kSize;
    options.config = config_;
    options.wiring = Wiring::kTcp;
    options.links_on_demand = true;
    options.links = std::move(links_[static_cast<size_t>(rank)]);
    return Engine::Make(std::move(options), engine);
  }

  // Runs a body on each rank, in threads. Links are made meanwhile, if they are.
  void Run(bool makes_links, const std::function<void(Engine&, int)>& body) {
    std::vector<std::unique_ptr<Engine>> engines(kSize);
    RunRanks(kSize, [&](int rank) { ASSERT_OK(Make(rank, &engines[rank])); });
    std::atomic<bool> over{false};
    std::thread maker([&] {
      while (makes_links && !over.load()) MakeWanted(engines);
    });
    RunRanks(kSize, [&](int rank) { body(*engines[rank], rank); });
    over.store(true);
    maker.join();
  }

  size_t made() const { return made_.size(); }

 private:
  void MakeWanted(const std::vector<std::unique_ptr<Engine>>& engines) {
    for (int rank = 0; rank < kSize; ++rank) {
      if (!Readable(engines[rank]->link_requests().fd(), 1)) continue;
      std::vector<WantedLink> wanted;
      if (!engines[rank]->link_requests().Take(&wanted)) return;
      for (const WantedLink& link : wanted) MakeLink(engines, rank, link);
    }
  }

  void MakeLink(const std::vector<std::unique_ptr<Engine>>& engines, int rank,
                const WantedLink& wanted) {
    const int peer = wanted.peer.value();
    if (!made_.emplace(std::min(rank, peer), std::max(rank, peer), wanted.role).second) return;
    const auto [near, far] = TcpPair();
    engines[rank]->AddLink(
        {near, GlobalRank(peer), wanted.role, TestKey(rank, peer), TestKey(peer, rank)});
    engines[peer]->AddLink(
        {far, GlobalRank(rank), wanted.role, TestKey(peer, rank), TestKey(rank, peer)});
  }

  const Config config_;
  std::vector<std::vector<Link>> links_;
  std::set<std::tuple<int, int, LinkRole>> made_;
};

TEST(EngineOnDemand, OperationsGetTheLinksThatTheyNeed) {
  Job job;
  job.Run(true, [](Engine& engine, int rank) {
    for (int round = 0; round < 20; ++round) {
      for (const size_t length : {size_t{1}, size_t{100'000}}) {
        std::vector<float> data(length, static_cast<float>(rank + round));
        ASSERT_OK(Allreduce(engine, "sum" + std::to_string(length), &data));
        const auto sum = static_cast<float>(6 + kSize * round);
        EXPECT_TRUE(std::all_of(data.begin(), data.end(), [&](float x) { return x == sum; }));
      }
      ASSERT_OK(Barrier(engine));
    }
  });
  EXPECT_TRUE(job.made() > 0);
}

TEST(EngineOnDemand, ItEndsWhileLinksAreAwaited) {
  const int before = OpenDescriptors();
  {
    Job job;
    job.Run(false, [](Engine& engine, int rank) {
      std::vector<float> data(10);
      HandlePtr handle;
      ASSERT_OK(Submit(engine, AllreduceEntry("sum", &data), &handle));
      if (rank > 0) {
        EXPECT_TRUE(Readable(engine.link_requests().fd()));
      }
      engine.Shutdown();
      EXPECT_FALSE(handle->status.ok());
      std::vector<WantedLink> wanted;
      EXPECT_FALSE(engine.link_requests().Take(&wanted));
      const auto [near, far] = UnixPair();
      const Descriptor other(far);
      engine.AddLink({near, GlobalRank(rank == 0 ? 1 : 0), LinkRole::kData, {}, {}});
    });
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(EngineOnDemand, ALinkThatCannotBeMadeFailsEveryRankWithOneText) {
  std::mutex mutex;
  std::set<std::string> texts;
  Job job;
  job.Run(false, [&](Engine& engine, int rank) {
    std::vector<float> data(10);
    HandlePtr handle;
    ASSERT_OK(Submit(engine, AllreduceEntry("sum", &data), &handle));
    if (rank == 2) {
      EXPECT_TRUE(Readable(engine.link_requests().fd()));
      engine.GiveUpLink(GlobalRank(0), "rank 2: no control link to rank 0");
    }
    const Status status = engine.Wait(handle, kPatienceMs * int64_t{1000}, nullptr);
    const std::lock_guard<std::mutex> lock(mutex);
    texts.insert(status.message());
  });
  EXPECT_EQ(texts.size(), size_t{1});
  EXPECT_TRUE(texts.begin()->find("rank 2: no control link to rank 0") != std::string::npos);
}

TEST(LinkRequests, WhatIsMissingIsSaidOnceWhenItIsOverdue) {
  LinkRequests requests;
  const Topology job({0, 0, 1}, true, {"here", "there"});
  requests.Ask({GlobalRank(2), LinkRole::kData});
  requests.Ask({GlobalRank(1), LinkRole::kControl});
  requests.Made({GlobalRank(1), LinkRole::kControl});
  const int64_t now = NowMicros();
  const GlobalRank self(0);
  EXPECT_EQ(requests.TakeOverdue(self, job, now, 10'000'000).size(), size_t{0});
  const auto lines = requests.TakeOverdue(self, job, now + 11'000'000, 10'000'000);
  ASSERT_TRUE(lines.size() == 1);
  EXPECT_EQ(
      lines[0],
      "rank 0 waits for its data link to rank 2 on there, which is made when it is first used");
  EXPECT_EQ(requests.TakeOverdue(self, job, now + 12'000'000, 10'000'000).size(), size_t{0});
  EXPECT_EQ(requests.Missing(self, job).size(), size_t{1});
}

}  // namespace
}  // namespace hvd::test
