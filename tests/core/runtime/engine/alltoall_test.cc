// Alltoalls whose members send each other what they like: nobody knows how much before.

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLongUs = kPatienceMs * int64_t{1000};

// One alltoall as all ranks know it, made from a seed.
struct Exchange {
  // Without columns rows are only counted.
  Exchange(uint64_t seed, int ranks, int64_t most, int64_t columns)
      : seed(seed), ranks(ranks), columns(columns) {
    std::mt19937_64 random(seed);
    for (int pair = 0; pair < ranks * ranks; ++pair) {
      const auto rows = static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
      matrix.push_back(random() % 4 == 0 ? 0 : rows);
    }
  }
  int64_t Rows(int from, int to) const { return matrix[static_cast<size_t>(from * ranks + to)]; }
  void Append(int from, int to, std::vector<int32_t>* data) const {
    for (int64_t i = 0; i < Rows(from, to) * columns; ++i)
      data->push_back(static_cast<int32_t>(seed * 100 + static_cast<uint64_t>(from * 10 + to)) +
                      static_cast<int32_t>(i) * 1000);
  }

  uint64_t seed;
  int ranks;
  int64_t columns;
  std::vector<int64_t> matrix;  // rows, [from * ranks + to]
};

// One rank's side of it.
class Flight {
 public:
  Flight(Engine* engine, Exchange exchange, int rank, std::string name)
      : engine_(engine), exchange_(std::move(exchange)), rank_(rank), name_(std::move(name)) {
    Entry entry;
    entry.request.kind = OpKind::kAlltoall;
    entry.request.name = name_;
    int64_t rows = 2;  // that nobody gets
    for (int to = 0; to < exchange_.ranks; ++to) {
      exchange_.Append(rank, to, &input_);
      entry.request.splits.push_back(exchange_.Rows(rank, to));
      rows += exchange_.Rows(rank, to);
    }
    input_.resize(static_cast<size_t>(rows * exchange_.columns), -1);
    entry.request.tensors = {{DataType::kInt32, {rows, exchange_.columns}}};
    const auto bytes = static_cast<int64_t>(input_.size() * sizeof(int32_t));
    entry.buffers.push_back({reinterpret_cast<const std::byte*>(input_.data()), bytes, nullptr, 0});
    ASSERT_OK(Submit(*engine, std::move(entry), &handle_));
  }

  void Check() {
    ASSERT_OK(engine_->Wait(handle_, kLongUs, nullptr));
    std::vector<int32_t> expected;
    std::vector<int64_t> rows;
    for (int from = 0; from < exchange_.ranks; ++from) {
      exchange_.Append(from, rank_, &expected);
      rows.push_back(exchange_.Rows(from, rank_));
    }
    ASSERT_EQ(handle_->outputs.size(), size_t{2});
    const Output& result = handle_->outputs[0];
    ASSERT_EQ(result.bytes, static_cast<int64_t>(expected.size() * sizeof(int32_t)));
    EXPECT_TRUE(std::memcmp(result.data.get(), expected.data(), expected.size() * 4) == 0);
    EXPECT_TRUE(std::memcmp(handle_->outputs[1].data.get(), rows.data(), rows.size() * 8) == 0);
  }

 private:
  Engine* const engine_;
  const Exchange exchange_;
  const int rank_;
  const std::string name_;
  std::vector<int32_t> input_;
  HandlePtr handle_;
};

// Few rows come along with their numbers, more do not, and many take several chunks.
constexpr int64_t kMosts[] = {0, 3, 40, 90, 300, 20'000};

TEST(Alltoall, OfAnySplitsAmongOneToFiveRanks) {
  for (const Wires wires : kAllWires) {
    for (const int size : {1, 2, 3, 4, 5}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        uint64_t seed = 0;
        for (int round = 0; round < 3; ++round) {
          for (const int64_t most : kMosts)
            Flight(&engine, Exchange(++seed, size, most, round), rank, "x").Check();
        }
      });
    }
  }
}

// Some of them travel together.
TEST(Alltoall, SeveralAtOnce) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      uint64_t seed = 0;
      for (int round = 0; round < 8; ++round) {
        std::deque<Flight> flights;
        for (int i = 0; i < 5; ++i) {
          const int64_t most = kMosts[(round + (round % 2) * i) % 6];
          flights.emplace_back(&engine, Exchange(++seed, 3, most, i), rank,
                               "x" + std::to_string(i));
        }
        for (Flight& flight : flights) flight.Check();
      }
    });
  }
}

// Steps with other splits each time are one step to a schedule.
TEST(Alltoall, OfSplitsThatVaryFollowsASchedule) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      uint64_t seed = 0;
      const auto train = [&](int steps) {
        for (int step = 0; step < steps; ++step) {
          ++seed;
          const auto most = static_cast<int64_t>(50 + seed % 300);
          Flight there(&engine, Exchange(seed, 3, most, 2), rank, "there");
          there.Check();
          std::vector<float> data(10, 1.0f);
          ASSERT_OK(Allreduce(engine, "gradient", &data));
          Flight back(&engine, Exchange(++seed, 3, 500, 1), rank, "");
          back.Check();
        }
      };
      EXPECT_TRUE(SomeRoundIsSilent(&engine, 20 * 3, [&] { train(20); }));
    });
  }
}

}  // namespace
}  // namespace hvd::test
