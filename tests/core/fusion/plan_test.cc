#include "fusion/plan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "check.h"

namespace hvd::fusion {
namespace {

using Groups = std::vector<std::vector<size_t>>;

Ready Allreduce(int64_t bytes, DataType dtype = DataType::kFloat32) {
  Ready tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes;
  return tensor;
}

Ready RandomTensor(std::mt19937& random) {
  Ready tensor;
  tensor.kind = static_cast<OpKind>(random() % 6);
  tensor.dtype = random() % 2 == 0 ? DataType::kFloat32 : DataType::kInt8;
  tensor.op = static_cast<ReduceOp>(random() % 6);
  tensor.prescale = random() % 4 == 0 ? 0.5 : 1.0;
  tensor.postscale = random() % 4 == 0 ? 2.0 : 1.0;
  tensor.root = GlobalRank(static_cast<int>(random() % 2));
  tensor.device = static_cast<DeviceKind>(random() % 3);
  tensor.bytes = random() % 5 == 0 ? 0 : random() % 200;
  return tensor;
}

std::vector<Ready> RandomTensors(std::mt19937& random) {
  std::vector<Ready> tensors(random() % 60);
  for (Ready& tensor : tensors) tensor = RandomTensor(random);
  return tensors;
}

bool Compatible(const Ready& a, const Ready& b) {
  if (a.kind != b.kind || a.device != b.device) return false;
  if (a.kind == OpKind::kBarrier) return false;
  if (a.kind == OpKind::kBroadcast) return a.root == b.root;
  if (a.kind == OpKind::kAllgather || a.kind == OpKind::kAlltoall) return true;
  return a.op != ReduceOp::kAdasum && a.dtype == b.dtype && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale;
}

int64_t BytesOf(const std::vector<Ready>& tensors, const std::vector<size_t>& group) {
  return std::accumulate(group.begin(), group.end(), int64_t{0},
                         [&](int64_t sum, size_t i) { return sum + tensors[i].bytes; });
}

TEST(Plan, NothingIsNothing) { EXPECT_TRUE(Plan({}, 100).empty()); }

TEST(Plan, SplitsAtTheThreshold) {
  EXPECT_TRUE(Plan({Allreduce(40), Allreduce(60), Allreduce(1)}, 100) == Groups({{0, 1}, {2}}));
}

TEST(Plan, ZeroMeansNoFusion) {
  EXPECT_TRUE(Plan({Allreduce(1), Allreduce(1), Allreduce(0)}, 0) == Groups({{0}, {1}, {2}}));
}

TEST(Plan, ALargeTensorGoesAloneAndSplitsNothing) {
  EXPECT_TRUE(Plan({Allreduce(10), Allreduce(101), Allreduce(10)}, 100) == Groups({{0, 2}, {1}}));
}

TEST(Plan, OtherTypesMayLieBetween) {
  const std::vector<Ready> tensors{Allreduce(1), Allreduce(1, DataType::kInt8), Allreduce(1)};
  EXPECT_TRUE(Plan(tensors, 100) == Groups({{0, 2}, {1}}));
}

TEST(Plan, BroadcastsOfOneRootTravelTogetherWhateverTheirType) {
  std::vector<Ready> tensors{Allreduce(1), Allreduce(1, DataType::kInt8), Allreduce(1)};
  for (Ready& tensor : tensors) tensor.kind = OpKind::kBroadcast;
  tensors[2].root = GlobalRank(1);
  EXPECT_TRUE(Plan(tensors, 100) == Groups({{0, 1}, {2}}));
}

TEST(Plan, ReducescattersAndAlltoallsTravelAmongThemselves) {
  std::vector<Ready> tensors(6, Allreduce(1));
  for (size_t i : {1, 3, 5}) tensors[i].kind = OpKind::kReducescatter;
  tensors[5].op = ReduceOp::kMax;
  for (size_t i : {2, 4}) tensors[i].kind = OpKind::kAlltoall;
  tensors[4].dtype = DataType::kInt8;
  EXPECT_TRUE(Plan(tensors, 100) == Groups({{0}, {1, 3}, {2, 4}, {5}}));
}

TEST(Plan, EveryPlanIsAPartitionOfCompatibleGroupsWithinTheThreshold) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::vector<Ready> tensors = RandomTensors(random);
    const auto threshold = static_cast<int64_t>(random() % 300);
    const Groups groups = Plan(tensors, threshold);
    std::vector<int> seen(tensors.size());
    size_t previous_first = 0;
    for (const auto& group : groups) {
      ASSERT_TRUE(!group.empty());
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_TRUE(group[0] >= previous_first);
      previous_first = group[0];
      for (size_t i : group) ++seen[i];
      for (size_t i = 1; i < group.size(); ++i)
        EXPECT_TRUE(Compatible(tensors[group[0]], tensors[group[i]]));
      EXPECT_TRUE(group.size() == 1 || (threshold > 0 && BytesOf(tensors, group) <= threshold));
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  }
}

// Two neighbouring groups that may travel together could not have been one.
TEST(Plan, GroupsAreNotSplitWithoutNeed) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const std::vector<Ready> tensors = RandomTensors(random);
    const Groups groups = Plan(tensors, 250);
    for (size_t a = 0; a < groups.size(); ++a) {
      for (size_t b = a + 1; b < groups.size(); ++b) {
        if (!Compatible(tensors[groups[a][0]], tensors[groups[b][0]])) continue;
        EXPECT_TRUE(BytesOf(tensors, groups[a]) + tensors[groups[b][0]].bytes > 250);
        break;
      }
    }
  }
}

// Factors, type and operation of what is not reduced change nothing.
TEST(Plan, IgnoresWhatDoesNotConcernAnOperation) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::vector<Ready> tensors = RandomTensors(random);
    const Groups before = Plan(tensors, 250);
    for (Ready& tensor : tensors) {
      const Ready other = RandomTensor(random);
      if (tensor.kind == OpKind::kAllreduce || tensor.kind == OpKind::kReducescatter) {
        tensor.root = other.root;
        continue;
      }
      tensor.dtype = other.dtype;
      tensor.op = other.op;
      tensor.prescale = other.prescale;
      if (tensor.kind != OpKind::kBroadcast) tensor.root = other.root;
    }
    EXPECT_TRUE(Plan(tensors, 250) == before);
  }
}

}  // namespace
}  // namespace hvd::fusion
