// Jobs of so many hosts that their negotiation goes over a tree in which most ranks are some hops
// away from the root.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Shape {
  Wires wires;
  int size;
  std::vector<int> hosts;
};

// Each rank a host of its own; hosts of one to three ranks; ranks of a host that are no neighbours.
const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {Wires::kInprocLinks, 13, {}},
      {Wires::kHosts, 14, {0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9}},
      {Wires::kHosts, 12, {0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 0}},
  };
  return shapes;
}

void ForEachShape(const std::function<void(Engine&, int rank, int size)>& body,
                  const std::vector<std::vector<int>>& sets = {}, const Config& config = {}) {
  for (const Shape& shape : Shapes()) {
    Cluster cluster(shape.size, shape.wires, sets, config, shape.hosts);
    cluster.Run([&](Engine& engine, int rank) { body(engine, rank, shape.size); });
  }
}

float SumOf(const std::vector<int>& ranks) {
  float sum = 0;
  for (const int rank : ranks) sum += static_cast<float>(rank + 1);
  return sum;
}

std::vector<int> Everybody(int size) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  return all;
}

// Submits so many tensors in this rank's own order, then waits for all.
void Step(Engine& engine, int rank, const std::vector<int>& members, int tensors,
          std::mt19937* random, uint32_t set = 0) {
  std::vector<int> order = Everybody(tensors);
  std::shuffle(order.begin(), order.end(), *random);
  std::deque<std::vector<float>> data;
  std::vector<HandlePtr> handles(static_cast<size_t>(tensors));
  for (const int t : order) {
    data.emplace_back(static_cast<size_t>(10 + 100 * t), static_cast<float>(rank + 1));
    ASSERT_OK(Submit(engine,
                     AllreduceEntry("t" + std::to_string(t), &data.back(), ReduceOp::kSum, set),
                     &handles[static_cast<size_t>(t)]));
  }
  for (const HandlePtr& handle : handles) ASSERT_OK(engine.Wait(handle, kLimitUs, nullptr));
  for (const std::vector<float>& one : data) {
    EXPECT_EQ(one.front(), SumOf(members));
    EXPECT_EQ(one.back(), one.front());
  }
}

TEST(Tree, CarriesSteps) {
  Config config;
  config.learned_schedule = false;
  ForEachShape(
      [](Engine& engine, int rank, int size) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int step = 0; step < 12; ++step) Step(engine, rank, Everybody(size), 7, &random);
        EXPECT_EQ(engine.CountersNow().at("gates"), uint64_t{0});
      },
      {}, config);
}

TEST(Tree, CarriesSchedulesThatAreLeft) {
  ForEachShape([](Engine& engine, int rank, int size) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 10; ++step) Step(engine, rank, Everybody(size), 5, &random);
      for (int step = 0; step < 2; ++step) Step(engine, rank, Everybody(size), 3 + step, &random);
      ASSERT_OK(Barrier(engine));
    }
    EXPECT_TRUE(engine.CountersNow().at("scheduled") > 0);
    EXPECT_TRUE(engine.CountersNow().at("schedules_left") > 0);
  });
}

TEST(Tree, CarriesProcessSetsOfAnyShape) {
  const std::vector<std::vector<int>> sets = {{1, 3, 4, 6, 7, 8, 9, 10, 11}, {5}, {2, 11}};
  ForEachShape(
      [&](Engine& engine, int rank, int /*size*/) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (uint32_t s = 0; s < sets.size(); ++s) {
          const std::vector<int>& members = sets[s];
          if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
          for (int step = 0; step < 6; ++step) Step(engine, rank, members, 4, &random, s + 1);
        }
      },
      sets);
}

Entry GatherEntry(const std::vector<float>& rows) {
  Entry entry;
  entry.request.kind = OpKind::kAllgather;
  entry.request.name = "rows";
  const auto count = static_cast<int64_t>(rows.size());
  entry.request.tensors.push_back({DataType::kFloat32, {count}});
  entry.buffers.push_back({reinterpret_cast<const std::byte*>(rows.data()),
                           static_cast<int64_t>(rows.size() * sizeof(float)), nullptr, 0});
  return entry;
}

TEST(Tree, CarriesTheRowsOfEachMember) {
  ForEachShape([](Engine& engine, int rank, int size) {
    for (int round = 0; round < 3; ++round) {
      const std::vector<float> rows(static_cast<size_t>((rank + round) % 4),
                                    static_cast<float>(rank));
      HandlePtr handle;
      ASSERT_OK(Run(engine, GatherEntry(rows), &handle));
      std::vector<float> expected;
      for (int r = 0; r < size; ++r)
        expected.insert(expected.end(), static_cast<size_t>((r + round) % 4),
                        static_cast<float>(r));
      ASSERT_EQ(NumElements(handle->outputs[0].shape), static_cast<int64_t>(expected.size()));
      EXPECT_TRUE(std::memcmp(handle->outputs[0].data.get(), expected.data(),
                              expected.size() * sizeof(float)) == 0);
    }
  });
}

TEST(Tree, CarriesADisagreementToAllInTheSameWords) {
  for (const Shape& shape : Shapes()) {
    Cluster cluster(shape.size, shape.wires, {}, {}, shape.hosts);
    std::vector<std::string> texts(static_cast<size_t>(shape.size));
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(rank == shape.size - 1 ? 5 : 4, 1.0f);
      texts[static_cast<size_t>(rank)] = Allreduce(engine, "w", &data).message();
      std::vector<float> next(4, 1.0f);
      ASSERT_OK(Allreduce(engine, "next", &next));
      EXPECT_EQ(next[0], static_cast<float>(shape.size));
    });
    EXPECT_TRUE(Contains(texts[0], "rank " + std::to_string(shape.size - 1)));
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  }
}

TEST(Tree, CarriesJoins) {
  ForEachShape([](Engine& engine, int rank, int size) {
    const int steps = 1 + rank * 5 % size;
    for (int step = 0; step < steps; ++step) {
      std::vector<float> data(10, 1.0f);
      ASSERT_OK(Allreduce(engine, "w", &data));
      int present = 0;
      for (int r = 0; r < size; ++r) present += 1 + r * 5 % size > step;
      EXPECT_EQ(data[0], static_cast<float>(present));
    }
    Entry entry;
    entry.request.kind = OpKind::kJoin;
    ASSERT_OK(Run(engine, std::move(entry)));
    ASSERT_OK(Barrier(engine));
  });
}

// Rank 10 submits nothing: the root hears of it, through nodes whose own programs wait as well.
TEST(Tree, CarriesWhatTheRootMustKnowOfAStall) {
  Config config;
  config.stall_check_disable = true;
  config.stall_shutdown_seconds = check::Within(4);
  std::atomic<int> told{0};
  ForEachShape(
      [&](Engine& engine, int rank, int size) {
        std::vector<float> data(10, 1.0f);
        if (rank == 10) {  // its leaving would be another reason
          const int64_t limit = NowMicros() + int64_t{60} * 1000000;
          while (told < size - 1 && NowMicros() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          told = 0;
          return;
        }
        const Status status = Allreduce(engine, "w", &data);
        ++told;
        EXPECT_TRUE(status.code() == Code::kAborted);
        EXPECT_TRUE(Contains(status.message(), "not by rank 10."));
        EXPECT_TRUE(Contains(status.message(), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11" +
                                                   std::string(size > 12 ? ", 12" : "")));
      },
      {}, config);
}

// Over links marks reach a rank by way of others. Rank 1 computes, so the last word of rank 0 may
// have to get through its engine to others, which would count as absent otherwise.
TEST(Tree, ARankThatComputesPassesMarksOn) {
  Config config;
  config.stall_check_disable = true;
  config.stall_shutdown_seconds = check::Within(4);
  Cluster cluster(4, Wires::kInprocLinks, {}, config);
  cluster.Run([&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int step = 0; step < 10; ++step) Step(engine, rank, Everybody(4), 1, &random);
    EXPECT_TRUE(engine.CountersNow().at("gates") > 0);
    // The others are ready for the next batch before rank 0 does something else.
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (rank == 1)
      std::this_thread::sleep_for(std::chrono::duration<double>(config.stall_shutdown_seconds + 3));
    if (rank == 1) return;
    std::vector<float> other(10, 1.0f);
    HandlePtr handle;
    if (rank == 0) ASSERT_OK(Submit(engine, AllreduceEntry("other", &other), &handle));
    std::vector<float> data(10, 1.0f);
    const Status status = Allreduce(engine, "t0", &data);
    EXPECT_TRUE(status.code() == Code::kAborted);
    EXPECT_TRUE(Contains(status.message(), "submitted by ranks 0, 2, 3, not by rank 1."));
  });
}

// Rank 8 passes on what others say, and is lost while they wait.
TEST(Tree, ALostNodeIsNamedOnAllOthers) {
  for (const Shape& shape : Shapes()) {
    Cluster cluster(shape.size, shape.wires, {}, {}, shape.hosts);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> data(1000, 1.0f);
      ASSERT_OK(Allreduce(engine, "before", &data));
      if (rank == 8) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        cluster.CutLinks(8);
        return;
      }
      const Status status = Allreduce(engine, "after", &data);
      EXPECT_TRUE(status.code() == Code::kAborted);
      EXPECT_TRUE(Contains(status.message(), "rank 8"));
    });
  }
}

}  // namespace
}  // namespace hvd::test
