#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"
#include "failing_memory.h"

namespace hvd::test {
namespace {

constexpr int64_t kStride = 16;
constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The error of a rank that has run out of memory, wherever it is met.
void ExpectOutOfMemory(const Status& status, int rank) {
  const memory::Exempt exempt;
  const bool named = !status.ok() && Contains(status.message(), "rank " + std::to_string(rank)) &&
                     Contains(status.message(), "memory");
  EXPECT_EQ(named ? "" : "'" + status.message() + "'", "");
}

// One kind of operation, with memory of its own.
struct Operation {
  OpKind kind;
  int64_t rows;
  ReduceOp op = ReduceOp::kSum;
  int tensors = 1;
};

constexpr Operation kOne{OpKind::kAllreduce, 1};
constexpr Operation kOperations[] = {
    {OpKind::kAllreduce, 10},
    {OpKind::kAllreduce, 200000},
    {OpKind::kAllreduce, 300, ReduceOp::kSum, 3},
    {OpKind::kAllreduce, 1000, ReduceOp::kAdasum},
    {OpKind::kAllgather, 30000},
    {OpKind::kBroadcast, 5000},
    {OpKind::kAlltoall, 4000},
    {OpKind::kReducescatter, 50000},
    {OpKind::kBarrier, 0},
};

Entry EntryOf(const Operation& operation, const std::string& name,
              std::vector<std::vector<float>>* data) {
  Entry entry;
  entry.urgent = true;
  entry.request.kind = operation.kind;
  entry.request.reduce_op = operation.op;
  if (operation.kind == OpKind::kBarrier) return entry;
  entry.request.name = name;
  data->assign(static_cast<size_t>(operation.tensors), std::vector<float>(operation.rows, 1.0f));
  for (std::vector<float>& tensor : *data) {
    entry.request.tensors.push_back({DataType::kFloat32, {operation.rows}});
    const auto bytes = static_cast<int64_t>(tensor.size() * sizeof(float));
    entry.buffers.push_back(TensorBuffer::InPlace(tensor.data(), bytes));
    const bool allocated = operation.kind == OpKind::kAllgather ||
                           operation.kind == OpKind::kAlltoall ||
                           operation.kind == OpKind::kReducescatter;
    if (allocated) entry.buffers.back() = {entry.buffers.back().input, bytes, nullptr, 0};
  }
  if (operation.kind == OpKind::kAlltoall) entry.request.splits.assign(2, operation.rows / 2);
  return entry;
}

// The operation of one rank. An error of the submission concerns this operation alone, so that it
// can be tried again; memory is there again then.
Status Perform(Engine& engine, const Operation& operation, const char* name, uint32_t set = 0) {
  std::vector<std::vector<float>> data;
  for (int attempt = 0;; ++attempt) {
    Entry entry;
    {
      const memory::Exempt exempt;
      entry = EntryOf(operation, name, &data);
      entry.process_set = set;
    }
    HandlePtr handle;
    const Status status = engine.Submit(std::move(entry), &handle);
    if (status.ok()) return engine.Wait(handle, kLimitUs, nullptr);
    if (status.code() != Code::kUnavailable || attempt > 0) return status;
    memory::Restore();
  }
}

Status PerformAll(Engine& engine) {
  int number = 0;
  for (const Operation& operation : kOperations) {
    std::string name;
    {
      const memory::Exempt exempt;
      name = "operation " + std::to_string(number++);
    }
    HVD_RETURN_IF_ERROR(Perform(engine, operation, name.c_str()));
  }
  return Status::Ok();
}

// Runs `body` on two ranks, one of which has no memory from its n-th allocation on. How it ends is
// the same on both: with success, or with an error that names that rank. True: an allocation has
// failed.
bool RunsOut(Wires wires, int victim, int64_t n, int64_t count,
             const std::function<Status(Engine&)>& body) {
  Cluster cluster(2, wires);
  cluster.BeginWith(memory::BelongTo);
  const int64_t start = NowMicros();
  bool failed = false;
  std::atomic<int> begun{0};
  cluster.Run([&](Engine& engine, int rank) {
    ASSERT_OK(Barrier(engine));
    ++begun;
    while (begun < 2) std::this_thread::yield();
    if (rank == victim) memory::Fail(rank, n, count);
    Status status = body(engine);
    if (status.ok()) status = Perform(engine, kOne, "end");
    if (rank == victim) {
      failed = memory::Failures() > 0;
      memory::Restore();
    }
    if (status.ok()) return;
    ExpectOutOfMemory(status, victim);
    ExpectOutOfMemory(Perform(engine, kOne, "later"), victim);
  });
  EXPECT_TRUE(NowMicros() - start < kLimitUs);
  return failed;
}

// At every allocation of either rank, the first ones more closely, until none fails any more.
void Sweep(Wires wires, int64_t count, const std::function<Status(Engine&)>& body) {
  for (const int victim : {0, 1}) {
    for (int64_t n = 1; RunsOut(wires, victim, n, count, body);) n += 1 + n / kStride;
  }
}

TEST(Memory, RunsOutOnceInAnyCollective) {
  for (const Wires wires : kAllWires) Sweep(wires, memory::kOnce, PerformAll);
}

TEST(Memory, RunsOutForGoodInAnyCollective) {
  for (const Wires wires : kAllWires) Sweep(wires, memory::kForGood, PerformAll);
}

Status AddUseAndRemoveASet(Engine& engine) {
  std::vector<int> members;
  {
    const memory::Exempt exempt;
    members = {0, 1};
  }
  uint32_t set = 0;
  HVD_RETURN_IF_ERROR(engine.AddProcessSet(std::move(members), &set));
  HVD_RETURN_IF_ERROR(Perform(engine, kOne, "in a set", set));
  return engine.RemoveProcessSet(set);
}

TEST(Memory, RunsOutWhileSetsComeAndGo) {
  for (const Wires wires : {Wires::kInprocLinks, Wires::kShm, Wires::kTcp}) {
    for (const int64_t count : {memory::kOnce, memory::kForGood})
      Sweep(wires, count, AddUseAndRemoveASet);
  }
}

// Of a start on two ranks where one has no memory from its n-th allocation on. True: an allocation
// has failed.
bool RunsOutAtTheStart(Wires wires, int victim, int64_t n, int64_t count) {
  Config config;
  config.start_timeout_seconds = 2;  // the limit of who waits for it in shared memory
  Cluster cluster(2, wires, {}, config);
  bool failed = false;
  Status statuses[2];
  const int64_t start = NowMicros();
  RunRanks(2, [&](int rank) {
    memory::BelongTo(rank);
    if (rank == victim) memory::Fail(rank, n, count);
    std::unique_ptr<Engine> engine;
    statuses[rank] = cluster.Make(rank, &engine);
    if (rank == victim) {
      failed = memory::Failures() > 0;
      memory::Restore();
    }
    if (engine == nullptr) return cluster.CutLinks(rank);  // of which the cluster has duplicates
    // Whoever has started meets the failure in the first operation.
    statuses[rank] = Perform(*engine, kOne, "first");
  });
  EXPECT_TRUE(NowMicros() - start < kLimitUs / 2);
  EXPECT_EQ(statuses[0].ok(), statuses[1].ok());
  if (!statuses[victim].ok())
    EXPECT_TRUE(Contains(statuses[victim].message(), "ran out of memory"));
  return failed;
}

TEST(Memory, RunsOutAtTheStart) {
  const int before = OpenDescriptors();
  for (const Wires wires : {Wires::kInprocLinks, Wires::kShm, Wires::kTcp}) {
    for (const int64_t count : {memory::kOnce, memory::kForGood}) {
      for (const int victim : {0, 1}) {
        for (int64_t n = 1; RunsOutAtTheStart(wires, victim, n, count);) n += 1 + n / kStride;
      }
    }
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Memory, AThreadThatIsRefusedIsAnError) {
  for (const int n : {1, 2}) {
    Cluster cluster(1, Wires::kTcp);
    memory::BelongTo(0);
    memory::RefuseThread(0, n);
    std::unique_ptr<Engine> engine;
    const Status status = cluster.Make(0, &engine);
    memory::Restore();
    EXPECT_TRUE(status.code() == Code::kUnavailable);
    for (const char* part : {"rank 0", "thread", "ulimit -u"})
      EXPECT_TRUE(Contains(status.message(), part));
  }
}

// A rank that has no memory hears that another one is lost.
TEST(Memory, AnotherRankIsLostWhileThereIsNone) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.BeginWith(memory::BelongTo);
    std::atomic<int> begun{0};
    std::atomic<bool> armed{false};
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(1000, 1.0f);
      HandlePtr handle;
      ASSERT_OK(Barrier(engine));
      if (rank != 2) ASSERT_OK(Submit(engine, AllreduceEntry("pending", &data), &handle));
      ++begun;
      while (begun < 3) std::this_thread::yield();
      if (rank == 0) memory::Fail(0, 1, memory::kForGood);
      armed = armed || rank == 0;
      if (rank == 2) {
        while (!armed) std::this_thread::yield();
        cluster.CutLinks(2);
        return;
      }
      const int64_t start = NowMicros();
      const Status status = engine.Wait(handle, kLimitUs, nullptr);
      const int64_t took = NowMicros() - start;
      if (rank == 0) memory::Restore();
      EXPECT_TRUE(status.code() == Code::kAborted);
      EXPECT_TRUE(Contains(status.message(), "rank 2") ||
                  Contains(status.message(), "rank 0 ran out of memory"));
      EXPECT_TRUE(took < kLimitUs / 2);
    });
  }
}

TEST(Memory, OperationsThatNobodyWaitsForEndOnce) {
  constexpr int kOperationsInFlight = 40;
  for (const Wires wires : kAllWires) {
    for (const int64_t n : {1, 5, 20, 60}) {
      Cluster cluster(2, wires);
      cluster.BeginWith(memory::BelongTo);
      std::atomic<int> begun{0};
      cluster.Run([&](Engine& engine, int rank) {
        std::vector<std::vector<float>> data(kOperationsInFlight, std::vector<float>(100, 1.0f));
        std::atomic<int> started{0};
        std::atomic<int> ended{0};
        ASSERT_OK(Barrier(engine));
        ++begun;
        while (begun < 2) std::this_thread::yield();
        if (rank == 1) memory::Fail(1, n, memory::kForGood);
        for (int i = 0; i < kOperationsInFlight; ++i) {
          Entry entry;
          {
            const memory::Exempt exempt;
            entry = AllreduceEntry(i % 3 == 0 ? "" : std::to_string(i), &data[i]);
            entry.awaited = i % 5 == 0;
            entry.on_complete = [&](const Handle&) { ++ended; };
          }
          HandlePtr handle;
          if (engine.Submit(std::move(entry), &handle).ok()) ++started;
        }
        engine.Shutdown();
        if (rank == 1) memory::Restore();
        EXPECT_EQ(ended.load(), started.load());
      });
    }
  }
}

TEST(Memory, ShutsDownWithoutAnyAndStartsAgain) {
  for (const Wires wires : kAllWires) {
    for (const bool again : {false, true}) {
      Cluster cluster(2, wires);
      cluster.BeginWith(memory::BelongTo);
      cluster.Run([&](Engine& engine, int rank) {
        ASSERT_OK(PerformAll(engine));
        if (rank == 1 || again) return;
        memory::Fail(0, 1, memory::kForGood);
        engine.Shutdown();
        memory::Restore();
      });
    }
  }
}

}  // namespace
}  // namespace hvd::test
