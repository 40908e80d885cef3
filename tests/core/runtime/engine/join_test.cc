#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimit = kPatienceMs * int64_t{1000};

Entry FloatEntry(OpKind kind, const std::string& name, const std::vector<float>& data,
                 int64_t columns = 1) {
  Entry entry;
  entry.request.kind = kind;
  entry.request.name = name;
  const auto rows = static_cast<int64_t>(data.size()) / columns;
  entry.request.tensors.push_back({DataType::kFloat32, {rows, columns}});
  const auto bytes = static_cast<int64_t>(data.size() * sizeof(float));
  entry.buffers.push_back({reinterpret_cast<const std::byte*>(data.data()), bytes, nullptr, 0});
  return entry;
}

std::vector<float> Floats(const Output& output) {
  std::vector<float> values(static_cast<size_t>(NumElements(output.shape)));
  if (!values.empty()) std::memcpy(values.data(), output.data.get(), values.size() * sizeof(float));
  return values;
}

int64_t Number(const Output& output, size_t at = 0) {
  int64_t value;
  std::memcpy(&value, output.data.get() + at * sizeof value, sizeof value);
  return value;
}

int64_t Join(Engine& engine, uint32_t set = 0) {
  Entry entry;
  entry.process_set = set;
  entry.request.kind = OpKind::kJoin;
  HandlePtr handle;
  const Status status = Run(engine, std::move(entry), &handle);
  EXPECT_EQ(status.message(), "");
  return handle->outputs.empty() ? -1 : Number(handle->outputs[0]);
}

std::vector<float> Of(int rank, size_t size) {
  return std::vector<float>(size, static_cast<float>(rank + 1));
}

// What ranks [from, size) compute while the lower ones have joined.
void WorkWithout(Engine& engine, int rank, int from, int size, size_t elements,
                 const std::string& name) {
  float sum = 0;
  float product = 1;
  for (int r = from; r < size; ++r) {
    sum += static_cast<float>(r + 1);
    product *= static_cast<float>(r + 1);
  }
  const struct {
    ReduceOp op;
    float expected;
  } kReductions[] = {{ReduceOp::kSum, sum},
                     {ReduceOp::kAverage, sum / static_cast<float>(size)},
                     {ReduceOp::kMin, static_cast<float>(from + 1)},
                     {ReduceOp::kMax, static_cast<float>(size)},
                     {ReduceOp::kProduct, product}};
  for (const auto& [op, expected] : kReductions) {
    std::vector<float> data = Of(rank, elements);
    ASSERT_OK(Allreduce(engine, op == ReduceOp::kSum ? "" : name + Name(op), &data, op));
    EXPECT_EQ(data.front(), expected);
    EXPECT_EQ(data.back(), expected);
  }
  HandlePtr handle;
  const std::vector<float> mine = Of(rank, static_cast<size_t>(rank + 1));
  ASSERT_OK(Run(engine, FloatEntry(OpKind::kAllgather, name + "gather", mine), &handle));
  std::vector<float> gathered;
  for (int r = from; r < size; ++r)
    gathered.insert(gathered.end(), static_cast<size_t>(r + 1), static_cast<float>(r + 1));
  EXPECT_TRUE(Floats(handle->outputs[0]) == gathered);

  const std::vector<float> rows = Of(rank, elements);
  Entry scatter = FloatEntry(OpKind::kReducescatter, name + "scatter", rows);
  ASSERT_OK(Run(engine, std::move(scatter), &handle));
  const size_t even = elements / static_cast<size_t>(size);
  const size_t more = static_cast<size_t>(rank) < elements % static_cast<size_t>(size) ? 1 : 0;
  EXPECT_TRUE(Floats(handle->outputs[0]) == std::vector<float>(even + more, sum));

  // Two rows to everybody, also to those that have joined, who drop them.
  const std::vector<float> parts = Of(rank, static_cast<size_t>(2 * size));
  Entry exchange = FloatEntry(OpKind::kAlltoall, name + "exchange", parts);
  exchange.request.splits.assign(static_cast<size_t>(size), 2);
  ASSERT_OK(Run(engine, std::move(exchange), &handle));
  std::vector<float> received;
  for (int r = from; r < size; ++r) received.insert(received.end(), 2, static_cast<float>(r + 1));
  EXPECT_TRUE(Floats(handle->outputs[0]) == received);
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(Number(handle->outputs[1], static_cast<size_t>(r)), r < from ? 0 : 2);
  }
  ASSERT_OK(Barrier(engine));
}

TEST(Join, ContributesNothingToAnyCollective) {
  constexpr int kSize = 4;
  for (const Wires wires : kAllWires) {
    Cluster cluster(kSize, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (int from = 0; from <= rank; ++from) {
          const std::string name = "e" + std::to_string(epoch) + "f" + std::to_string(from);
          WorkWithout(engine, rank, from, kSize, from % 2 == 0 ? 5 : 300000, name);
          WorkWithout(engine, rank, from, kSize, 7, "cached");
        }
        EXPECT_EQ(Join(engine), kSize - 1);
      }
      std::vector<float> data(3, 1.0f);
      ASSERT_OK(Allreduce(engine, "", &data));
      EXPECT_EQ(data[0], 4.0f);
    });
  }
}

// What a rank announced by its id when the others disagreed is over, and no hindrance once it has
// joined.
TEST(Join, TakesPartUnderAnIdOfWhichTheRanksDisagreedBefore) {
  for (const Wires wires : {Wires::kInprocWindow, Wires::kInprocLinks}) {
    for (const int joiner : {0, 1}) {
      Cluster cluster(2, wires);
      cluster.Run([&](Engine& engine, int rank) {
        std::vector<float> data(4, 1.0f);
        ASSERT_OK(Allreduce(engine, "a", &data));
        std::vector<float> other(rank == joiner ? 4 : 3, 1.0f);
        EXPECT_EQ(Allreduce(engine, "a", &other).code(), Code::kMismatch);
        if (rank != joiner) {
          ASSERT_OK(Allreduce(engine, "a", &data));
          EXPECT_EQ(data[3], 2.0f);
        }
        EXPECT_EQ(Join(engine), 1 - joiner);
      });
    }
  }
}

// A factor would turn the identity of Min, Max and Product into something else.
TEST(Join, FactorsLeaveTheIdentityAlone) {
  Cluster cluster(2, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (rank == 1) {
        std::vector<float> data = {3.0f, -5.0f};
        Entry entry = AllreduceEntry("x", &data, op);
        entry.request.prescale = -0.5;
        ASSERT_OK(Run(engine, std::move(entry)));
        EXPECT_EQ(data[0], -1.5f);
        EXPECT_EQ(data[1], 2.5f);
      }
      EXPECT_EQ(Join(engine), 1);
    }
  });
}

TEST(Join, AJoinedRootIsNamed) {
  Cluster cluster(3, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    if (rank != 0) {
      std::vector<float> data(2, 1.0f);
      Entry entry = AllreduceEntry("from the root", &data);
      entry.request.kind = OpKind::kBroadcast;
      const Status status = Run(engine, std::move(entry));
      EXPECT_TRUE(status.code() == Code::kMismatch);
      EXPECT_TRUE(status.message().find("0") != std::string::npos);
      EXPECT_TRUE(status.message().find("joined") != std::string::npos);
      data.assign(2, 1.0f);
      ASSERT_OK(Allreduce(engine, "next", &data));
      EXPECT_EQ(data[0], 2.0f);
    }
    EXPECT_TRUE(Join(engine) >= 0);
  });
}

TEST(Join, RefusesWhatIsSubmittedMeanwhile) {
  Cluster cluster(2, Wires::kShm);
  std::atomic<bool> has_asked{false};
  cluster.Run([&](Engine& engine, int rank) {
    HandlePtr join;
    if (rank == 0) {
      Entry entry;
      entry.request.kind = OpKind::kJoin;
      ASSERT_OK(engine.Submit(std::move(entry), &join));
      std::vector<float> data(1, 1.0f);
      const Status refused = Allreduce(engine, "x", &data);
      EXPECT_TRUE(refused.code() == Code::kInvalidArgument);
      EXPECT_TRUE(refused.message().find("joined") != std::string::npos);
      has_asked = true;
      ASSERT_OK(engine.Wait(join, kLimit, nullptr));
    } else {
      std::vector<float> data(1, 1.0f);
      ASSERT_OK(Allreduce(engine, "x", &data));
      EXPECT_EQ(data[0], 1.0f);
      while (!has_asked) std::this_thread::yield();  // the join lasts until then
      Join(engine);
    }
  });
}

// The join is the last to complete: a rank comes back from it only when nobody needs its part any
// more, though it may do nothing for long afterwards.
TEST(Join, ComesBackAfterWhatItTakesPartIn) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    std::atomic<bool> done{false};
    cluster.Run([&](Engine& engine, int rank) {
      if (rank == 1) {
        EXPECT_TRUE(Join(engine) >= 0);
        while (!done) std::this_thread::yield();  // submits nothing, waits for nothing
        return;
      }
      std::vector<float> data(3000000, 1.0f);
      HandlePtr handle;
      ASSERT_OK(Submit(engine, AllreduceEntry("x", &data), &handle));
      EXPECT_TRUE(Join(engine) >= 0);
      ASSERT_OK(engine.Wait(handle, kLimit, nullptr));
      EXPECT_EQ(data.back(), 1.0f);
      done = true;
    });
  }
}

// Every rank joins each of its sets; what was submitted before and not waited for is completed by
// then.
TEST(Join, SpansOverlappingSets) {
  const std::vector<std::vector<int>> sets = {{0, 1}, {1, 2}};
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires, sets);
    cluster.Run([&](Engine& engine, int rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::vector<float> left(4, 1.0f), right(4, 1.0f);
        HandlePtr a, b;
        if (rank == 1) ASSERT_OK(Submit(engine, AllreduceEntry("l", &left, ReduceOp::kSum, 1), &a));
        if (rank == 2)
          ASSERT_OK(Submit(engine, AllreduceEntry("r", &right, ReduceOp::kSum, 2), &b));
        std::vector<HandlePtr> joins;
        for (uint32_t set = 0; set < 3; ++set) {
          if (set > 0 && (rank < static_cast<int>(set) - 1 || rank > static_cast<int>(set)))
            continue;
          Entry entry;
          entry.process_set = set;
          entry.request.kind = OpKind::kJoin;
          ASSERT_OK(engine.Submit(std::move(entry), &joins.emplace_back()));
        }
        for (const HandlePtr& join : joins) ASSERT_OK(engine.Wait(join, kLimit, nullptr));
        if (rank == 1) ASSERT_OK(engine.Wait(a, kLimit, nullptr));
        if (rank == 2) ASSERT_OK(engine.Wait(b, kLimit, nullptr));
        EXPECT_EQ(left[0], 1.0f);
        EXPECT_EQ(right[0], 1.0f);
      }
    });
  }
}

}  // namespace
}  // namespace hvd::test
