#include <atomic>
#include <random>
#include <thread>

#include "check.h"
#include "cluster.h"
#include "runtime/progress/cycle.h"

namespace hvd::test {
namespace {

const std::vector<std::vector<int>> kOverlapping = {{0, 1}, {1, 2}, {0, 2, 3}};

float SumOf(const std::vector<int>& members) {
  float sum = 0;
  for (const int member : members) sum += static_cast<float>(member + 1);
  return sum;
}

bool Belongs(int rank, const std::vector<int>& members) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

// Every rank submits to all its sets in an order of its own, large and small: with machines that
// waited, or sets that shared a queue, two ranks would soon wait for each other.
TEST(Sets, OverlappingSetsNeverBlockEachOther) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires, kOverlapping);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<std::vector<int>> sets = {{0, 1, 2, 3}};
      sets.insert(sets.end(), kOverlapping.begin(), kOverlapping.end());
      std::mt19937 random(100 + rank);
      for (int round = 0; round < 15; ++round) {
        std::vector<uint32_t> order;
        for (uint32_t s = 0; s < sets.size(); ++s) {
          if (Belongs(rank, sets[s])) order.push_back(s);
        }
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::vector<float>> data(sets.size());
        std::vector<HandlePtr> handles(sets.size());
        for (const uint32_t s : order) {
          data[s].assign(round % 3 == 0 ? 400000 : 17, static_cast<float>(rank + 1));
          ASSERT_OK(Submit(engine, AllreduceEntry("same name", &data[s], ReduceOp::kSum, s),
                           &handles[s]));
        }
        std::shuffle(order.begin(), order.end(), random);
        for (const uint32_t s : order) {
          ASSERT_OK(engine.Wait(handles[s], kPatienceMs * int64_t{1000}, nullptr));
          EXPECT_EQ(data[s].front(), SumOf(sets[s]));
          EXPECT_EQ(data[s].back(), SumOf(sets[s]));
        }
      }
    });
  }
}

TEST(Sets, AStrangerIsRefused) {
  Cluster cluster(4, Wires::kShm, kOverlapping);
  cluster.Run([&](Engine& engine, int rank) {
    std::vector<float> data(1, 1.0f);
    const Status status = Allreduce(engine, "x", &data, ReduceOp::kSum, 1);
    if (Belongs(rank, kOverlapping[0])) {
      EXPECT_TRUE(status.ok());
    } else {
      EXPECT_TRUE(status.code() == Code::kInvalidArgument);
      EXPECT_TRUE(status.message().find("does not belong to process set 1") != std::string::npos);
    }
  });
}

// Sets come and go while others are in use; ids are never given again.
TEST(Sets, AreAddedAndRemovedWhileRunning) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(7);  // the same choices on every rank
      uint32_t expected = 1;
      for (int round = 0; round < 12; ++round) {
        std::vector<std::vector<int>> sets;
        std::vector<uint32_t> ids;
        for (int s = 0; s < 3; ++s) {
          std::vector<int> members;
          for (int r = 0; r < 4; ++r) {
            if (random() % 2 == 0 || r == s) members.push_back(r);
          }
          uint32_t id = 0;
          ASSERT_OK(engine.AddProcessSet(members, &id));
          EXPECT_EQ(id, expected++);
          sets.push_back(members);
          ids.push_back(id);
        }
        for (size_t s = 0; s < sets.size(); ++s) {
          if (!Belongs(rank, sets[s])) continue;
          std::vector<float> data(round % 2 == 0 ? 3 : 200000, static_cast<float>(rank + 1));
          ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, ids[s]));
          EXPECT_EQ(data.back(), SumOf(sets[s]));
        }
        for (const uint32_t id : ids) ASSERT_OK(engine.RemoveProcessSet(id));
        std::vector<float> data(1, 1.0f);
        EXPECT_TRUE(Allreduce(engine, "x", &data, ReduceOp::kSum, ids[0]).code() ==
                    Code::kInvalidArgument);
        ASSERT_OK(Allreduce(engine, "all", &data));
        EXPECT_EQ(data[0], 4.0f);
      }
    });
  }
}

// The one who has an operation in flight is not robbed of it, and everybody hears why.
TEST(Sets, InUseIsNotRemoved) {
  Cluster cluster(3, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    uint32_t id = 0;
    ASSERT_OK(engine.AddProcessSet({0, 1}, &id));
    std::vector<float> data(1, 1.0f);
    HandlePtr handle;
    if (rank == 0)
      ASSERT_OK(Submit(engine, AllreduceEntry("late", &data, ReduceOp::kSum, id), &handle));
    const Status refused = engine.RemoveProcessSet(id);
    EXPECT_TRUE(refused.code() == Code::kInvalidArgument);
    EXPECT_TRUE(refused.message().find("in flight") != std::string::npos);
    if (rank == 1)
      ASSERT_OK(Submit(engine, AllreduceEntry("late", &data, ReduceOp::kSum, id), &handle));
    if (rank < 2) ASSERT_OK(engine.Wait(handle, kPatienceMs * int64_t{1000}, nullptr));
    ASSERT_OK(Barrier(engine));
    ASSERT_OK(engine.RemoveProcessSet(id));
  });
}

// Whatever another thread submits meanwhile, a set goes when nothing is in flight on it, and each
// operation ends once: it is carried out, or refused.
TEST(Sets, GoWhileAnotherThreadSubmits) {
  for (const Wires wires : {Wires::kInprocWindow, Wires::kInprocLinks}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int round = 0; round < 40; ++round) {
        uint32_t ids[2];
        for (const int owner : {0, 1}) ASSERT_OK(engine.AddProcessSet({owner}, &ids[owner]));
        std::atomic<int> begun{0};
        std::atomic<int> ended{0};
        std::thread other([&] {
          for (Status status; status.ok() || begun == 0;) {
            Entry entry;
            entry.process_set = ids[rank];
            entry.request.kind = OpKind::kBarrier;
            entry.on_complete = [&](const Handle&) { ++ended; };
            HandlePtr handle;
            status = engine.Submit(std::move(entry), &handle);
            begun += status.ok() ? 1 : 0;
            while (ended < begun) std::this_thread::yield();
          }
        });
        while (begun == 0) std::this_thread::yield();
        for (const uint32_t id : ids) {
          Status removed;
          do {
            removed = engine.RemoveProcessSet(id);
          } while (removed.message().find("in flight") != std::string::npos);
          EXPECT_EQ(removed.message(), "");
        }
        other.join();
        EXPECT_EQ(begun.load(), ended.load());
      }
    });
  }
}

// Only says which sets it was told to forget.
class ForgettingTransport : public Transport {
 public:
  explicit ForgettingTransport(std::vector<uint32_t>* forgotten) : forgotten_(forgotten) {}
  GlobalRank rank() const override { return GlobalRank(0); }
  int size() const override { return 1; }
  void Send(GlobalRank, const FrameTag&, const void*, size_t, Transfer*) override {}
  void Recv(GlobalRank, const FrameTag&, void*, size_t, Transfer*) override {}
  void Forget(uint32_t set) override { forgotten_->push_back(set); }
  Status Progress(bool*) override { return Status::Ok(); }
  GlobalRank lost_peer() const override { return {}; }
  GlobalRank TakeEnded() override { return {}; }
  int poll_fd() const override { return -1; }
  void Close(int64_t) override {}

 private:
  std::vector<uint32_t>* forgotten_;
};

// Otherwise the ids that a transport keeps would have a gap for each.
TEST(Sets, OneOfOtherRanksIsForgottenTooWhenItGoes) {
  std::vector<uint32_t> forgotten;
  Queue queue;
  AbortCell abort;
  Cycle cycle(GlobalRank(0), {}, &queue, &abort);
  for (int i = 0; i < 2; ++i) cycle.Own(std::make_unique<ForgettingTransport>(&forgotten));
  cycle.Dismiss(7);
  EXPECT_TRUE((forgotten == std::vector<uint32_t>{7, 7}));
}

}  // namespace
}  // namespace hvd::test
