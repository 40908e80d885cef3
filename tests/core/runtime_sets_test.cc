#include <random>

#include "check.h"
#include "cluster.h"

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

// Every rank submits to all its sets in an order of its own, large and small: with machines that waited, or
// sets that shared a queue, two ranks would soon wait for each other.
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
          ASSERT_OK(Submit(engine, AllreduceEntry("same name", &data[s], ReduceOp::kSum, s), &handles[s]));
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

}  // namespace
}  // namespace hvd::test
