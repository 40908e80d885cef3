#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

// The sum over ranks of rank + 1.
float Ranks(int size) { return static_cast<float>(size * (size + 1) / 2); }

TEST(Engine, ReducesOnEveryWiring) {
  for (const Wires wires : kAllWires) {
    for (const int size : {1, 2, 3, 4}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        for (const size_t count : {0u, 1u, 14u, 1000u, 300000u}) {
          std::vector<float> data(count, static_cast<float>(rank + 1));
          ASSERT_OK(Allreduce(engine, "t" + std::to_string(count), &data));
          EXPECT_TRUE(data == std::vector<float>(count, Ranks(size)));
        }
        ASSERT_OK(Barrier(engine));
      });
    }
  }
}

TEST(Engine, ReducesSixtyFourMebibytesInMemory) {
  constexpr size_t kCount = 16 << 20;
  for (const Wires wires : {Wires::kInprocWindow, Wires::kInprocLinks}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(kCount, 1.0f);
      for (size_t i = 0; i < kCount; i += 1013) data[i] = static_cast<float>((rank + 1) * (i % 97));
      ASSERT_OK(Allreduce(engine, "large", &data));
      for (size_t i = 0; i < kCount; i += 1013)
        EXPECT_EQ(data[i], 3.0f * static_cast<float>(i % 97));
      EXPECT_EQ(std::count(data.begin(), data.end(), 2.0f) >=
                    static_cast<long>(kCount - kCount / 1013 - 1),
                true);
    });
  }
}

TEST(Engine, OrdersOperationsThatRanksSubmitInAnyOrder) {
  constexpr int kTensors = 60;
  constexpr int kRounds = 20;
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(rank);
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < kRounds; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::vector<float>> data(kTensors);
        std::vector<HandlePtr> handles(kTensors);
        for (const int t : order) {
          data[t].assign(1 + t * 7, static_cast<float>((rank + 1) * (t + round)));
          ASSERT_OK(
              Submit(engine, AllreduceEntry("tensor" + std::to_string(t), &data[t]), &handles[t]));
        }
        std::shuffle(order.begin(), order.end(), random);
        for (const int t : order) {
          ASSERT_OK(engine.Wait(handles[t], kPatienceMs * int64_t{1000}, nullptr));
          EXPECT_EQ(data[t].front(), Ranks(3) * static_cast<float>(t + round));
          EXPECT_EQ(data[t].back(), data[t].front());
        }
      }
      const auto counters = engine.CountersNow();
      EXPECT_EQ(counters.at("cache_misses"), uint64_t{kTensors});
      EXPECT_EQ(counters.at("cache_hits") + counters.at("scheduled"),
                uint64_t{kTensors * (kRounds - 1)});
    });
  }
}

TEST(Engine, GathersRaggedAndBroadcasts) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<int32_t> rows(2 * rank, rank);  // rank 0 contributes nothing
      Entry gather;
      gather.request.kind = OpKind::kAllgather;
      gather.request.tensors.push_back({DataType::kInt32, {rank, 2}});
      const auto rows_bytes = static_cast<int64_t>(rows.size() * sizeof(int32_t));
      gather.buffers.push_back({reinterpret_cast<std::byte*>(rows.data()), rows_bytes, nullptr, 0});
      HandlePtr handle;
      ASSERT_OK(Run(engine, gather, &handle));
      const Output& output = handle->outputs.at(0);
      EXPECT_EQ(ToString(output.shape), "[6, 2]");
      const auto* got = reinterpret_cast<const int32_t*>(output.data.get());
      EXPECT_TRUE(std::vector<int32_t>(got, got + 12) ==
                  (std::vector<int32_t>{1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3}));

      std::vector<double> data(5000, rank);
      Entry broadcast;
      broadcast.request.kind = OpKind::kBroadcast;
      broadcast.request.name = "weights";
      broadcast.request.root = GlobalRank(2);
      broadcast.request.tensors.push_back({DataType::kFloat64, {5000}});
      broadcast.buffers.push_back(TensorBuffer::InPlace(data.data(), 5000 * sizeof(double)));
      ASSERT_OK(Run(engine, broadcast));
      EXPECT_TRUE(data == std::vector<double>(5000, 2.0));
    });
  }
}

// Without an output the core allocates one, for every kind and also for empty tensors and parts of
// a group.
TEST(Engine, AllocatesTheOutputsThatTheCallerDoesNotGive) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(1000, static_cast<float>(rank + 1));
      for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
        for (const int64_t count : {int64_t{0}, int64_t{10}, int64_t{1000}}) {
          Entry entry;
          entry.request.kind = kind;
          entry.request.root = GlobalRank(1);
          entry.request.tensors = {{DataType::kFloat32, {count}}, {DataType::kFloat32, {2}}};
          std::vector<float> given(2, 5.0f);
          auto* input = reinterpret_cast<const std::byte*>(data.data());
          entry.buffers.push_back({input, count * 4, nullptr, 0});
          entry.buffers.push_back(TensorBuffer::InPlace(given.data(), 8));
          HandlePtr handle;
          ASSERT_OK(Run(engine, std::move(entry), &handle));
          ASSERT_EQ(handle->outputs.size(), size_t{2});
          const Output& output = handle->outputs[0];
          EXPECT_EQ(output.bytes, count * 4);
          EXPECT_EQ(ToString(output.shape), "[" + std::to_string(count) + "]");
          const auto* got = reinterpret_cast<const float*>(output.data.get());
          const float expected = kind == OpKind::kAllreduce ? 3.0f : 2.0f;
          EXPECT_TRUE(std::vector<float>(got, got + count) ==
                      std::vector<float>(static_cast<size_t>(count), expected));
          EXPECT_TRUE(handle->outputs[1].data == nullptr);
          EXPECT_EQ(given[1], kind == OpKind::kAllreduce ? 10.0f : 5.0f);
        }
      }
      EXPECT_EQ(data[999], static_cast<float>(rank + 1));
    });
  }
}

TEST(Engine, RefusesMemoryOfAnotherLengthThanTheTensor) {
  Cluster cluster(1, Wires::kInprocWindow);
  cluster.Run([&](Engine& engine, int) {
    std::vector<float> data(10, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    const auto code_of = [&](OpKind kind, TensorBuffer buffer) {
      Entry entry;
      entry.request.kind = kind;
      entry.request.name = "w";
      entry.request.tensors = {{DataType::kFloat32, {10}}};
      if (kind == OpKind::kAlltoall) entry.request.splits = {10};
      entry.buffers = {buffer};
      return Run(engine, std::move(entry)).code();
    };
    EXPECT_TRUE(code_of(OpKind::kAllreduce, {bytes, 40, bytes, 40}) == Code::kOk);
    for (const TensorBuffer& wrong :
         {TensorBuffer{bytes, 39, bytes, 40}, TensorBuffer{bytes, 40, bytes, 36},
          TensorBuffer{bytes, 44, nullptr, 0}, TensorBuffer{nullptr, 40, bytes, 40},
          TensorBuffer{nullptr, 0, nullptr, 0}}) {
      EXPECT_TRUE(code_of(OpKind::kAllreduce, wrong) == Code::kInvalidArgument);
      EXPECT_TRUE(code_of(OpKind::kBroadcast, wrong) == Code::kInvalidArgument);
    }
    for (const OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall, OpKind::kReducescatter}) {
      EXPECT_TRUE(code_of(kind, {bytes, 40, nullptr, 0}) == Code::kOk);
      EXPECT_TRUE(code_of(kind, {bytes, 40, bytes, 40}) == Code::kOk);
      EXPECT_TRUE(code_of(kind, {bytes, 36, nullptr, 0}) == Code::kInvalidArgument);
    }
  });
}

TEST(Engine, TellsEveryRankOfAMismatchInTheSameWords) {
  for (const Wires wires : kAllWires) {
    std::vector<std::string> messages(3);
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(rank == 1 ? 3 : 4, 1.0f);
      const Status status = Allreduce(engine, "w", &data);
      EXPECT_TRUE(status.code() == Code::kMismatch);
      messages[rank] = status.message();
      std::vector<float> next(4, 1.0f);
      ASSERT_OK(Allreduce(engine, "w", &next));
      EXPECT_EQ(next[0], 3.0f);
    });
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_EQ(messages[0], messages[2]);
    for (const char* part : {"'w'", "ranks 0, 2", "rank 1", "[3]", "[4]"}) {
      EXPECT_TRUE(messages[0].find(part) != std::string::npos);
    }
  }
}

TEST(Engine, RefusesWhatOneCallerGotWrong) {
  Cluster cluster(2, Wires::kInprocWindow);
  cluster.Run([&](Engine& engine, int rank) {
    std::vector<float> data(4, 1.0f);
    std::vector<float> other(4, 1.0f);
    HandlePtr first;
    HandlePtr second;
    if (rank == 0) {
      ASSERT_OK(Submit(engine, AllreduceEntry("twice", &data), &first));
      const Status status = Submit(engine, AllreduceEntry("twice", &other), &second);
      EXPECT_TRUE(status.code() == Code::kDuplicate);
      EXPECT_TRUE(status.message().find("'twice'") != std::string::npos);
      ASSERT_OK(engine.Wait(first, -1, nullptr));
    } else {
      ASSERT_OK(Allreduce(engine, "twice", &data));
    }
    EXPECT_EQ(data[0], 2.0f);
    Entry entry = AllreduceEntry("shape", &data);
    entry.request.tensors[0].shape = {-1};
    EXPECT_TRUE(Submit(engine, entry, &first).code() == Code::kInvalidArgument);
    entry.request.tensors[0].shape = {int64_t{1} << 62, 4};
    EXPECT_TRUE(Submit(engine, entry, &first).code() == Code::kInvalidArgument);
    // Nothing here takes memory, but the result of all ranks would.
    entry.request.kind = OpKind::kAllgather;
    entry.buffers[0] = {};
    for (const Shape& shape : {Shape{0, int64_t{1} << 50}, Shape{int64_t{1} << 50, 0}}) {
      entry.request.tensors[0].shape = shape;
      EXPECT_TRUE(Submit(engine, entry, &first).code() == Code::kInvalidArgument);
    }
    entry.process_set = 7;
    EXPECT_TRUE(Submit(engine, entry, &first).code() == Code::kInvalidArgument);
  });
}

TEST(Engine, WaitEndsAtItsLimitAndTheOperationGoesOn) {
  Cluster cluster(2, Wires::kShm);
  std::atomic<bool> limited{false};
  cluster.Run([&](Engine& engine, int rank) {
    std::vector<float> data(1, 1.0f);
    HandlePtr handle;
    if (rank == 0) {
      ASSERT_OK(Submit(engine, AllreduceEntry("late", &data), &handle));
      EXPECT_TRUE(engine.Wait(handle, 20000, nullptr).code() == Code::kTimeout);
      limited = true;
      ASSERT_OK(engine.Wait(handle, -1, nullptr));
    } else {
      while (!limited) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_OK(Allreduce(engine, "late", &data));
    }
    EXPECT_EQ(data[0], 2.0f);
  });
}

TEST(Engine, CallsSinksOnceAndServesManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  for (const Wires wires : {Wires::kInprocWindow, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int) {
      std::atomic<int> called{0};
      std::vector<std::vector<float>> data(kThreads * kEach, std::vector<float>(100, 1.0f));
      RunRanks(kThreads, [&](int thread) {
        for (int i = 0; i < kEach; ++i) {
          const int t = thread * kEach + i;
          Entry entry = AllreduceEntry("x" + std::to_string(t), &data[t]);
          entry.on_complete = [&](const Handle& handle) {
            called += handle.status.ok() ? 1 : 1000000;
          };
          HandlePtr handle;
          ASSERT_OK(Submit(engine, std::move(entry), &handle));
          if (i % 3 == 0) ASSERT_OK(engine.Wait(handle, -1, nullptr));
        }
      });
      ASSERT_OK(Barrier(engine));
      for (int t = 0; called < kThreads * kEach && t < 20000; ++t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(called.load(), kThreads * kEach);
      for (const auto& one : data) EXPECT_EQ(one[99], 2.0f);
    });
  }
}

TEST(Engine, SleepsWhenNothingIsSubmitted) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int) {
      std::vector<float> data(10, 1.0f);
      HandlePtr handle;
      ASSERT_OK(Submit(engine, AllreduceEntry("a", &data), &handle));
      ASSERT_OK(engine.Wait(handle, -1, nullptr));
      // What the operation leaves to do may come late on a busy machine; then all is quiet.
      bool sleeps = false;
      for (int i = 0; i < 20 && !sleeps; ++i) {
        const auto before = engine.CountersNow().at("wakeups");
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        sleeps = engine.CountersNow().at("wakeups") == before;
      }
      EXPECT_TRUE(sleeps);
    });
  }
}

TEST(Engine, LeavesNothingBehind) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    int descriptors = 0;
    int mappings = 0;
    for (int round = 0; round < 12; ++round) {
      Cluster(2, wires).Run([&](Engine& engine, int) {
        std::vector<float> data(100000, 1.0f);
        ASSERT_OK(Allreduce(engine, "a", &data));
      });
      if (round == 1) descriptors = OpenDescriptors(), mappings = SharedMappings();
    }
    EXPECT_EQ(OpenDescriptors(), descriptors);
    EXPECT_EQ(SharedMappings(), mappings);
  }
}

}  // namespace
}  // namespace hvd::test
