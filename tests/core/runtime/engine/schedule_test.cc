// Steps that repeat are followed without negotiation, and whatever else a program does still works.

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLongUs = kPatienceMs * int64_t{1000};

float SumOfRanks(int size) { return static_cast<float>(size * (size + 1)) / 2; }

// Tensors that a rank submits together and then waits for.
class Step {
 public:
  Step(Engine* engine, int rank, int size) : engine_(engine), rank_(rank), size_(size) {}

  void Submit(const std::string& name, size_t elements, uint32_t set = 0) {
    data_.emplace_back(elements, static_cast<float>(rank_ + 1));
    HandlePtr& handle = handles_.emplace_back();
    ASSERT_OK(
        test::Submit(*engine_, AllreduceEntry(name, &data_.back(), ReduceOp::kSum, set), &handle));
  }

  void Wait(float sum = 0) {
    for (size_t i = 0; i < handles_.size(); ++i) {
      ASSERT_OK(engine_->Wait(handles_[i], kLongUs, nullptr));
      EXPECT_EQ(data_[i].front(), sum > 0 ? sum : SumOfRanks(size_));
      EXPECT_EQ(data_[i].back(), data_[i].front());
    }
    handles_.clear();
    data_.clear();
  }

 private:
  Engine* engine_;
  int rank_;
  int size_;
  std::deque<std::vector<float>> data_;
  std::vector<HandlePtr> handles_;
};

void Train(Engine& engine, int rank, int size, int steps, int tensors = 8) {
  Step step(&engine, rank, size);
  for (int i = 0; i < steps; ++i) {
    for (int t = 0; t < tensors; ++t) step.Submit("t" + std::to_string(t), 10 + 1000 * t);
    step.Wait();
  }
}

TEST(LearnedSchedule, SendsNoControlMessageOnceStepsRepeat) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3, 4}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        EXPECT_TRUE(SomeRoundIsSilent(&engine, 20 * 8, [&] { Train(engine, rank, size, 20); }));
      });
    }
  }
}

// In every step: two small tensors, which marks carry, among one that is too large for that.
void ReduceRandom(Engine& engine, int rank, int size, int step) {
  const auto of = [step](int r, size_t tensor) {
    std::mt19937 random(static_cast<uint32_t>(1000 * step + 10 * r) +
                        static_cast<uint32_t>(tensor));
    std::vector<float> values(tensor == 1 ? 5000 : 3 + tensor);
    for (float& value : values) value = static_cast<float>(random() % 1000);
    return values;
  };
  std::vector<std::vector<float>> tensors;
  for (size_t tensor = 0; tensor < 3; ++tensor) tensors.push_back(of(rank, tensor));
  for (size_t tensor = 0; tensor < 3; ++tensor) {
    HandlePtr handle;
    const Entry entry =
        AllreduceEntry("tensor " + std::to_string(tensor), &tensors[tensor], ReduceOp::kSum, 0);
    ASSERT_OK(test::Submit(engine, entry, &handle));
    ASSERT_OK(engine.Wait(handle, kLongUs, nullptr));
    std::vector<float> sum(tensors[tensor].size());
    for (int r = 0; r < size; ++r) {
      const std::vector<float> values = of(r, tensor);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    EXPECT_TRUE(tensors[tensor] == sum);
  }
}

TEST(LearnedSchedule, HasItsMarksCarryWhatIsSmall) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3, 5}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        for (int step = 0; step < 60; ++step) ReduceRandom(engine, rank, size, step);
        const auto counters = engine.CountersNow();
        EXPECT_TRUE(counters.at("carried") >= uint64_t{60});
        EXPECT_TRUE(counters.at("carried") <= uint64_t{2 * 60});
      });
    }
  }
}

// An operation may read what an earlier one of this rank has written, which has not ended yet.
TEST(LearnedSchedule, CarriesWhatEarlierOperationsHaveWritten) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        for (int step = 0; step < 40; ++step) {
          std::vector<float> data(5, static_cast<float>(100 * step + rank));
          Entry broadcast = AllreduceEntry("broadcast", &data);
          broadcast.request.kind = OpKind::kBroadcast;
          broadcast.request.root = GlobalRank(1);
          broadcast.urgent = true;
          HandlePtr first, second;
          ASSERT_OK(test::Submit(engine, broadcast, &first));
          // So that there are two batches, the second of which the others are ready for at once.
          if (rank == 1) ASSERT_OK(engine.Wait(first, kLongUs, nullptr));
          Entry sum = AllreduceEntry("sum", &data);
          sum.urgent = true;
          ASSERT_OK(test::Submit(engine, sum, &second));
          ASSERT_OK(engine.Wait(second, kLongUs, nullptr));
          if (rank != 1) ASSERT_OK(engine.Wait(first, kLongUs, nullptr));
          EXPECT_EQ(data.back(), static_cast<float>(size * (100 * step + 1)));
        }
        EXPECT_TRUE(engine.CountersNow().at("carried") > 0);
      });
    }
  }
}

// Likewise if both are ready at once, in one batch.
TEST(LearnedSchedule, CarriesNoBatchThatReadsItsOwnResults) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int step = 0; step < 40; ++step) {
        std::vector<float> data(5, static_cast<float>(step + rank));
        std::vector<float> most(5);
        HandlePtr first, second;
        ASSERT_OK(test::Submit(engine, AllreduceEntry("sum", &data), &first));
        Entry entry = AllreduceEntry("most", &data, ReduceOp::kMax);
        entry.buffers[0].output = reinterpret_cast<std::byte*>(most.data());
        ASSERT_OK(test::Submit(engine, entry, &second));
        ASSERT_OK(engine.Wait(first, kLongUs, nullptr));
        ASSERT_OK(engine.Wait(second, kLongUs, nullptr));
        EXPECT_EQ(most.back(), static_cast<float>(2 * step + 1));
      }
    });
  }
}

TEST(LearnedSchedule, CanBeSwitchedOff) {
  Config config;
  config.learned_schedule = false;
  Cluster cluster(2, Wires::kInprocWindow, {}, config);
  cluster.Run([&](Engine& engine, int rank) {
    Train(engine, rank, 2, 20);
    EXPECT_EQ(engine.CountersNow().at("gates"), uint64_t{0});
  });
}

// Training, then fewer tensors, then other ones, then training again.
TEST(LearnedSchedule, IsLeftWhenTheStepHasAnotherShape) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        Train(engine, rank, 3, 20);
        Train(engine, rank, 3, 5, 3);  // a part of what the schedule expects
        Step validation(&engine, rank, 3);
        for (int i = 0; i < 6; ++i) {
          validation.Submit("loss", 1);
          validation.Wait();
        }
      }
      EXPECT_TRUE(engine.CountersNow().at("schedules_left") > 0);
      EXPECT_TRUE(engine.CountersNow().at("scheduled") > 0);
    });
  }
}

// So many batches a step takes, once steps are fast: the least of many.
uint64_t BatchesOfFastSteps(Engine& engine, int rank, int size, int steps) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < steps; ++i) {
    const uint64_t before = engine.CountersNow().at("gates");
    Train(engine, rank, size, 1);
    const uint64_t gates = engine.CountersNow().at("gates") - before;
    if (gates > 0) least = std::min(least, gates);
  }
  return least;
}

// Batches of steps in which tensors came one by one are not kept when they come together.
TEST(LearnedSchedule, IsLearnedAgainWhenStepsBecomeFaster) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      Step step(&engine, rank, 3);
      for (int slow = 0; slow < 6; ++slow) {
        for (int t = 0; t < 8; ++t) {
          step.Submit("t" + std::to_string(t), 10 + 1000 * t);
          std::this_thread::sleep_for(std::chrono::milliseconds(4));
        }
        step.Wait();
      }
      // On a busy machine fast steps are slow at times, too, and so are those that are learned
      // then.
      uint64_t least = UINT64_MAX;
      for (int round = 0; round < 8; ++round) {
        Train(engine, rank, 3, 100);
        least = std::min(least, BatchesOfFastSteps(engine, rank, 3, 10));
      }
      EXPECT_TRUE(least < 4);
    });
  }
}

// A program that asks for its result again and again waits for it, as one that is blocked.
TEST(LearnedSchedule, IsLeftByAProgramThatPollsForAPartOfIt) {
  Cluster cluster(2, Wires::kInprocWindow);
  int64_t least_us = kLongUs;
  cluster.Run([&](Engine& engine, int rank) {
    for (int phase = 0; phase < 10; ++phase) {
      Train(engine, rank, 2, 20);
      std::vector<float> data(2010, 1.0f);
      HandlePtr handle;
      ASSERT_OK(Submit(engine, AllreduceEntry("t2", &data, ReduceOp::kSum, 0), &handle));
      const int64_t begin = NowMicros();
      while (!engine.Poll(handle)) std::this_thread::yield();
      ASSERT_OK(handle->status);
      if (rank == 0) least_us = std::min(least_us, NowMicros() - begin);
    }
    EXPECT_TRUE(engine.CountersNow().at("schedules_left") > 4);
  });
  EXPECT_TRUE(least_us < 50'000);  // half of what a rank waits that only computes
}

// Names that never come back do not keep a step from being learned.
TEST(LearnedSchedule, IsMadeThoughTheCacheIsFull) {
  Config config;
  config.cache_capacity = 16;
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires, {}, config);
    cluster.Run([&](Engine& engine, int rank) {
      Step step(&engine, rank, 3);
      for (int name = 0; name < 100; ++name) {
        step.Submit("once." + std::to_string(name), 1);
        if (name % 3 == 0) step.Wait();
      }
      step.Wait();
      Train(engine, rank, 3, 100);
      EXPECT_TRUE(engine.CountersNow().at("gates") > 0);
    });
  }
}

// The same operations on all ranks, but each rank in an order of its own, now waiting at once, now
// at the end.
TEST(LearnedSchedule, RanksSubmitInAnyOrder) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(rank);
      for (int round = 0; round < 60; ++round) {
        std::vector<int> order(6);
        std::iota(order.begin(), order.end(), 0);
        const bool in_turn = round % 3 == 0 && rank == round % 4;
        if (!in_turn && round % 2 == 0) std::shuffle(order.begin(), order.end(), random);
        Step step(&engine, rank, 4);
        for (const int t : order) {
          step.Submit("t" + std::to_string(t), 1 + 300 * t);
          if (in_turn) step.Wait();
        }
        step.Wait();
      }
    });
  }
}

// What a program does in a step is drawn alike on all ranks: most steps are alike.
TEST(LearnedSchedule, ServesRandomPrograms) {
  for (const Wires wires : kAllWires) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      Cluster cluster(3, wires, {{0, 1}, {1, 2}});
      cluster.Run([&](Engine& engine, int rank) {
        std::mt19937 random(seed);
        uint32_t shape = 0;
        for (int round = 0; round < 120; ++round) {
          if (random() % 12 == 0) shape = random();
          std::mt19937 drawn(shape);
          Step step(&engine, rank, 3);
          const auto count = static_cast<int>(1 + drawn() % 5);
          for (int t = 0; t < count; ++t) {
            const bool unnamed = drawn() % 3 == 0;
            const size_t elements = 1 + drawn() % 3000;
            step.Submit(unnamed ? "" : "t" + std::to_string(t) + "." + std::to_string(elements),
                        elements);
          }
          const uint32_t both = drawn();
          Step first(&engine, rank, 3);
          Step second(&engine, rank, 3);
          if (both % 2 == 0 && rank <= 1) first.Submit("first", 40, 1);
          if (both % 3 == 0 && rank >= 1) second.Submit("second", 50, 2);
          step.Wait();
          second.Wait(5);
          first.Wait(3);
        }
      });
    }
  }
}

TEST(LearnedSchedule, GathersAsManyRowsAsWereLearned) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int round = 0; round < 60; ++round) {
        const int64_t rows = round % 20 == 19 ? round : rank + 1;  // now and then others
        std::vector<int32_t> data(static_cast<size_t>(2 * rows), rank);
        Entry gather;
        gather.request.kind = OpKind::kAllgather;
        gather.request.name = "rows";
        gather.request.tensors.push_back({DataType::kInt32, {rows, 2}});
        const auto bytes = static_cast<int64_t>(data.size() * sizeof(int32_t));
        gather.buffers.push_back({reinterpret_cast<std::byte*>(data.data()), bytes, nullptr, 0});
        HandlePtr handle;
        ASSERT_OK(Run(engine, gather, &handle));
        const int64_t expected = round % 20 == 19 ? 3 * round : 6;
        EXPECT_EQ(handle->outputs.at(0).shape[0], expected);
      }
      EXPECT_TRUE(engine.CountersNow().at("scheduled") > 0);
    });
  }
}

TEST(LearnedSchedule, EndsWithAJoin) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        Train(engine, rank, 3, 12, 2);
        Step alone(&engine, rank, 3);
        if (rank > 0) alone.Submit("rest", 9);
        if (rank > 0) alone.Wait(5);
        Entry join;
        join.request.kind = OpKind::kJoin;
        HandlePtr handle;
        ASSERT_OK(Run(engine, join, &handle));
      }
      EXPECT_TRUE(engine.CountersNow().at("scheduled") > 0);
    });
  }
}

}  // namespace
}  // namespace hvd::test
