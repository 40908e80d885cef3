#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"
#include "runtime/engine/cores.h"
#include "runtime/liveness/watcher.h"

namespace hvd::test {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// As long as it lives, this process can open nothing.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(STDERR_FILENO);
    close(lowest_free);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(lowest_free);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

// Nobody would ever wake them.
TEST(Faults, EnginesAndWatchersDoNotStartWithoutADescriptorToSleepOn) {
  inproc::Fabric fabric(1);
  EngineOptions options;
  options.wiring = Wiring::kInproc;
  options.fabric = &fabric;
  AbortCell abort;
  std::unique_ptr<Engine> engine;
  Status of_engine;
  Status of_watcher;
  {
    const NoMoreDescriptors limit;
    of_engine = Engine::Make(std::move(options), &engine);
    of_watcher = Watcher(WatcherOptions(), &abort).Start();
  }
  EXPECT_TRUE(engine == nullptr);
  for (const Status& status : {of_engine, of_watcher}) {
    EXPECT_TRUE(status.code() == Code::kUnavailable);
    EXPECT_TRUE(Contains(status.message(), "ulimit -n"));
  }
}

// Another rank sets it, however late that is on a busy machine.
void AwaitFlag(const std::atomic<bool>& flag) {
  const int64_t limit = NowMicros() + int64_t{60} * 1000000;
  while (!flag && NowMicros() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Each rank is pinned to one of the first two that this process has.
void PinTo(int place) {
  cpu_set_t all;
  cpu_set_t one;
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof all, &all);
  for (int core = 0; core < CPU_SETSIZE && place >= 0; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    --place;
  }
  sched_setaffinity(0, sizeof one, &one);
}

TEST(Faults, WhoCountsTheCoresOfItsHostCountsThoseOfRanksThatHaveLeft) {
  const int both = std::min(2, UsableCores());
  inproc::Fabric fabric(2);
  Waker wakers[2];
  std::atomic<bool> left{false};
  RunRanks(2, [&](int rank) {
    PinTo(rank);
    HostCores cores;
    EXPECT_EQ(cores.Count(), 1);
    std::unique_ptr<Window> window = fabric.MakeWindow(1, {0, 1}, GlobalRank(rank), wakers[rank]);
    ASSERT_OK(cores.Tell(window.get()));
    if (rank == 0) AwaitFlag(left);
    if (rank == 0) EXPECT_EQ(cores.Count(), both);
    window.reset();
    left = true;
  });
}

// A program may end right after its start, before others have come through theirs.
TEST(Faults, WhoLeavesRightAfterItsStartDisturbsNobodysStart) {
  for (const Wires wires : kAllWires) {
    for (int round = 0; round < 20; ++round) {
      Cluster cluster(4, wires, {{0, 3}}, {},
                      wires == Wires::kHosts ? std::vector<int>{0, 0, 0, 1} : std::vector<int>());
      RunRanks(4, [&](int rank) {
        std::unique_ptr<Engine> engine;
        ASSERT_OK(cluster.Make(rank, &engine));
      });
    }
  }
}

// Rank 2 stops in the middle of its work (it submits no more) and is then lost: whoever waits for
// it learns its name at once, as does every later operation, until a new engine.
TEST(Faults, AStoppedAndThenLostRankIsNamedOnAllOthers) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(2000000, 1.0f);
      ASSERT_OK(Allreduce(engine, "before", &data));
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        cluster.CutLinks(2);
        return;
      }
      const int64_t start = NowMicros();
      const Status status = Allreduce(engine, "after", &data);
      EXPECT_TRUE(status.code() == Code::kAborted);
      EXPECT_TRUE(Contains(status.message(), "rank 2"));
      EXPECT_TRUE(Contains(status.message(), "'after'"));
      EXPECT_TRUE(NowMicros() - start < 5000000);  // 0.1 s where no other test takes the cores
      EXPECT_TRUE(Contains(Allreduce(engine, "later", &data).message(), "rank 2"));
    });
  }
}

TEST(Faults, ARankThatLeavesEarlyIsNamed) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(10, 1.0f);
      ASSERT_OK(Allreduce(engine, "common", &data));
      if (rank == 1) {
        engine.Shutdown();
        return;
      }
      const Status status = Allreduce(engine, "alone", &data);
      EXPECT_TRUE(status.code() == Code::kAborted);
      for (const char* part : {"rank 1", "has left the job", "'alone'"})
        EXPECT_TRUE(Contains(status.message(), part));
    });
  }
}

TEST(Faults, ShutdownFailsWhatIsInFlightAndWhatComesLater) {
  Cluster cluster(2, Wires::kShm);
  std::atomic<bool> over{false};
  cluster.Run([&](Engine& engine, int rank) {
    if (rank == 1) {
      AwaitFlag(over);
      return;
    }
    std::vector<float> data(10, 1.0f);
    HandlePtr handle;
    ASSERT_OK(Submit(engine, AllreduceEntry("pending", &data), &handle));
    std::thread waiter(
        [&] { EXPECT_TRUE(Contains(engine.Wait(handle, -1, nullptr).message(), "shut down")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    engine.Shutdown();
    waiter.join();
    EXPECT_TRUE(Allreduce(engine, "late", &data).code() == Code::kShutdown);
    over = true;
  });
}

// Ranks that leave right after their last operation must not fail the others' last operation.
TEST(Faults, LeavingAfterTheLastOperationHarmsNobody) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    for (int round = 0; round < 20; ++round) {
      Cluster cluster(3, wires);
      cluster.Run([&](Engine& engine, int rank) {
        std::vector<float> data(round % 2 == 0 ? 5 : 700000, static_cast<float>(rank));
        ASSERT_OK(Allreduce(engine, "last", &data));
        EXPECT_EQ(data[0], 3.0f);
        engine.Shutdown();
      });
    }
  }
}

// Whoever is absent, also when it is the rank that sequences.
TEST(Faults, AStalledOperationFailsAtTheLimitThatWasSet) {
  Config config;
  config.heartbeat_seconds = 0.1;
  config.stall_check_disable = true;
  config.stall_shutdown_seconds = 0.5;
  for (const Wires wires : kAllWires) {
    for (const int absent : {0, 1}) {
      Cluster cluster(2, wires, {}, config);
      std::atomic<bool> over{false};
      cluster.Run([&](Engine& engine, int rank) {
        std::vector<float> data(1, 1.0f);
        if (rank == absent) {
          AwaitFlag(over);  // else its leaving is the reason
          return;
        }
        const Status status = Allreduce(engine, "lonely", &data);
        over = true;
        EXPECT_TRUE(status.code() == Code::kAborted);
        for (const std::string& part :
             {std::string("lonely"), "not by rank " + std::to_string(absent)}) {
          EXPECT_TRUE(Contains(status.message(), part));
        }
      });
    }
  }
}

// All wait in the library for longer than a deadlock is given, one of them for what the others have
// not submitted: but an operation is under way, whose end lets them go on.
TEST(Faults, ASlowOperationIsNoDeadlock) {
  Config config;
  config.heartbeat_seconds = 0.05;
  config.stall_deadlock_seconds = 0.4;
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(2, wires, {{0, 1}}, config);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> early(1, 1.0f);
      std::vector<float> slow(16 << 20, 1.0f);
      std::vector<float> quick(1, 1.0f);
      HandlePtr handles[3];
      if (rank == 0) ASSERT_OK(Submit(engine, AllreduceEntry("early", &early), &handles[0]));
      Entry entry = AllreduceEntry("slow", &slow, ReduceOp::kSum, 1);
      entry.awaited = true;
      std::atomic<bool> completed{false};
      entry.on_complete = [&](const Handle&) { completed = true; };
      ASSERT_OK(Submit(engine, std::move(entry), &handles[1]));
      entry = AllreduceEntry("quick", &quick);
      // Meanwhile nobody drives this rank.
      entry.on_complete = [&](const Handle&) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      };
      ASSERT_OK(Submit(engine, std::move(entry), &handles[2]));
      while (!completed) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(handles[1]->status.message(), "");
      if (rank == 1) ASSERT_OK(Submit(engine, AllreduceEntry("early", &early), &handles[0]));
      ASSERT_OK(engine.Wait(handles[0], int64_t{60} * 1000000, nullptr));
      EXPECT_EQ(early[0], 2.0f);
    });
  }
}

}  // namespace
}  // namespace hvd::test
