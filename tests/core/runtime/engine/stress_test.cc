#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLongUs = kPatienceMs * int64_t{1000};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void ExpectNames(const Status& status, const std::string& who, const std::string& what) {
  const bool named = Contains(status.message(), who) && Contains(status.message(), what);
  EXPECT_EQ(named ? "" : status.message(), "");
}

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A thread's share of the work: submits under its own names in an order of its own, waits now with
// a limit, now without, now not at all until the end.
void SubmitAndWait(Engine& engine, int rank, int thread, int rounds) {
  std::mt19937 random(1000 * rank + thread);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<float>> data(6);
    std::vector<HandlePtr> handles(data.size());
    for (size_t t = 0; t < data.size(); ++t) {
      data[t].assign(t == 5 ? 70000 : 1 + t * 100, static_cast<float>(rank + 1));
      Entry entry = AllreduceEntry(std::to_string(thread) + "." + std::to_string(t), &data[t]);
      entry.urgent = t % 2 == 0;
      ASSERT_OK(Submit(engine, std::move(entry), &handles[t]));
      if (random() % 3 == 0) (void)engine.Wait(handles[t], random() % 300, nullptr);
    }
    for (size_t t = data.size(); t-- > 0;) {
      ASSERT_OK(engine.Wait(handles[t], kLongUs, nullptr));
      EXPECT_EQ(data[t].back(), 6.0f);
    }
  }
}

TEST(Stress, ManyThreadsSubmitAndWaitInAnyOrder) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      RunRanks(4, [&](int thread) { SubmitAndWait(engine, rank, thread, 12); });
    });
  }
}

// A waiter that has nothing to do sleeps and holds the progress lock. Another thread's operation
// must not wait until it looks again.
TEST(Stress, AWaiterDoesNotHoldUpAnother) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> late(1, 1.0f);
      std::vector<float> data(10, 1.0f);
      HandlePtr handle;
      std::thread waiter;
      if (rank == 0) {
        ASSERT_OK(Submit(engine, AllreduceEntry("late", &late), &handle));
        waiter = std::thread([&] { ASSERT_OK(engine.Wait(handle, kLongUs, nullptr)); });
        SleepMs(50);
      }
      const int64_t start = NowMicros();
      for (int i = 0; i < 10; ++i) {
        if (rank == 0) SleepMs(5);
        ASSERT_OK(Allreduce(engine, "often", &data));
      }
      if (rank == 0) EXPECT_TRUE(NowMicros() - start < 700000);
      if (rank == 1) ASSERT_OK(Allreduce(engine, "late", &late));
      if (waiter.joinable()) waiter.join();
    });
  }
}

// The sink of one operation runs while another thread drives. Whoever ran it must come back though
// that other thread's operation needs what comes next.
TEST(Stress, ASinkDoesNotCostItsThreadTheTurn) {
  for (const Wires wires : {Wires::kInprocWindow, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> first(1, 1.0f);
      std::vector<float> last(1, 1.0f);
      HandlePtr last_handle;
      std::thread waiter;
      if (rank == 0) {
        ASSERT_OK(Submit(engine, AllreduceEntry("last", &last), &last_handle));
        waiter = std::thread([&] { ASSERT_OK(engine.Wait(last_handle, kLongUs, nullptr)); });
      }
      const int64_t start = NowMicros();
      for (int i = 0; i < 8; ++i) {
        Entry entry = AllreduceEntry("first", &first);
        entry.urgent = true;
        // While the sink runs, the lock is free and the other waiter takes it.
        entry.on_complete = [](const Handle&) { SleepMs(20); };
        ASSERT_OK(Run(engine, std::move(entry)));
      }
      if (rank == 0) EXPECT_TRUE(NowMicros() - start < 900000);
      if (rank == 1) ASSERT_OK(Allreduce(engine, "last", &last));
      if (waiter.joinable()) waiter.join();
    });
  }
}

std::atomic<int> asked{0};

// A limit, and the look for signals, must not depend on a pause in the traffic of other threads.
TEST(Stress, LimitsHoldWhileOthersAreBusy) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    asked = 0;
    cluster.Run([&](Engine& engine, int rank) {
      std::atomic<bool> timed_out{false};
      std::vector<float> late(1, 1.0f);
      std::thread waiter;
      HandlePtr handle;
      if (rank == 0) {
        ASSERT_OK(Submit(engine, AllreduceEntry("late", &late), &handle));
        waiter = std::thread([&] {
          const int64_t start = NowMicros();
          const auto look = [] { return ++asked < 0; };
          EXPECT_TRUE(engine.Wait(handle, 1000000, look).code() == Code::kTimeout);
          EXPECT_TRUE(NowMicros() - start < 5000000);  // half of how long the others are busy
          EXPECT_TRUE(asked > 0);
          timed_out = true;
        });
      }
      std::vector<float> data(10, 1.0f);
      std::vector<float> stop(1, 0.0f);
      const int64_t start = NowMicros();
      while (stop[0] == 0.0f && NowMicros() - start < 10000000) {
        stop[0] = timed_out ? 1.0f : 0.0f;
        ASSERT_OK(Allreduce(engine, "busy", &data));
        ASSERT_OK(Allreduce(engine, "stop", &stop));
      }
      EXPECT_TRUE(stop[0] != 0.0f);
      if (rank == 1) ASSERT_OK(Allreduce(engine, "late", &late));
      if (waiter.joinable()) waiter.join();
      if (handle != nullptr) ASSERT_OK(engine.Wait(handle, kLongUs, nullptr));
    });
  }
}

// Whenever it happens, the survivors name the rank that was lost and not each other.
TEST(Stress, ALossAtAnyMomentHasOneCause) {
  std::mt19937 random(7);
  for (const Wires wires : kAllWires) {
    for (int round = 0; round < 8; ++round) {
      Cluster cluster(3, wires);
      const int until = static_cast<int>(random() % 8000);
      cluster.Run([&](Engine& engine, int rank) {
        RunRanks(2, [&](int thread) {
          std::vector<float> data(thread == 0 ? 10 : 200000, 1.0f);
          Status status;
          for (int i = 0; status.ok(); ++i) {
            if (rank == 2 && thread == 0 && i == 20) {
              std::this_thread::sleep_for(std::chrono::microseconds(until));
              cluster.CutLinks(2);
              engine.Shutdown();  // whose goodbye goes nowhere
            }
            status = Allreduce(engine, std::to_string(thread) + "." + std::to_string(i % 5), &data);
          }
          if (rank == 2) return;
          EXPECT_TRUE(status.code() == Code::kAborted);
          ExpectNames(status, "rank 2 (pid", "died");
        });
      });
    }
  }
}

// A rank that shuts down while its operations are in flight has left in good order: it says so
// before it closes anything, and nobody takes it for lost.
TEST(Stress, WhoShutsDownAtAnyMomentIsNotLost) {
  std::mt19937 random(11);
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    for (int round = 0; round < 2; ++round) {
      Cluster cluster(3, wires);
      const int until = static_cast<int>(random() % 8000);
      cluster.Run([&](Engine& engine, int rank) {
        RunRanks(3, [&](int thread) {
          if (thread == 2) {
            if (rank != 1) return;
            std::this_thread::sleep_for(std::chrono::microseconds(20000 + until));
            engine.Shutdown();
            return;
          }
          std::vector<float> data(thread == 0 ? 10 : 200000, 1.0f);
          Status status;
          for (int i = 0; status.ok(); ++i) {
            status = Allreduce(engine, std::to_string(thread) + "." + std::to_string(i % 5), &data);
          }
          if (rank != 1) ExpectNames(status, "rank 1 (pid", "has left the job");
        });
      });
    }
  }
}

}  // namespace
}  // namespace hvd::test
