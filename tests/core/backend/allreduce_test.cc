#include <unistd.h>

#include <atomic>
#include <fstream>

#include "allreduce_cases.h"

namespace hvd::test {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

void RunAndCheck(Medium medium, int ranks, std::vector<AllreduceCase>* cases) {
  RunAllreduces(medium, ranks, cases);
  for (const AllreduceCase& c : *cases) CheckAllreduce(medium, c);
}

void EveryTypeAndOp(const std::vector<int64_t>& elements, const std::vector<int>& numbers) {
  std::mt19937_64 random(1);
  const auto make = [&](int ranks, Values values) {
    std::vector<AllreduceCase> cases;
    for (int dtype = 0; dtype < kDataTypes; ++dtype) {
      for (ReduceOp op : kOps) {
        const auto type = static_cast<DataType>(dtype);
        if (type == DataType::kBool && op == ReduceOp::kAverage) continue;
        cases.push_back(
            MakeAllreduce(MakeReduction(type, op, ranks), ranks, elements, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(Usually(numbers), make, RunAndCheck);
}

TEST(Allreduce, NoPieces) { EveryTypeAndOp({}, kManyRanks); }
TEST(Allreduce, Empty) { EveryTypeAndOp({0}, kManyRanks); }
TEST(Allreduce, OneElement) { EveryTypeAndOp({1}, {1, 3, 8}); }
TEST(Allreduce, Seven) { EveryTypeAndOp({7}, {2, 4}); }
TEST(Allreduce, Thousand) { EveryTypeAndOp({1023}, {1, 3, 8}); }
TEST(Allreduce, FourThousand) { EveryTypeAndOp({4097}, {2, 4}); }
TEST(Allreduce, SmallPieces) { EveryTypeAndOp({1, 0, 3, 17, 0, 100, 1}, {1, 3, 8}); }
TEST(Allreduce, MixedPieces) { EveryTypeAndOp({3, 0, 5000, 1, 64, 9001, 0, 777}, {2, 3, 4}); }

TEST(Allreduce, Megabyte) {
  std::mt19937_64 random(2);
  const auto make = [&](int ranks, Values values) {
    std::vector<AllreduceCase> cases;
    for (DataType dtype : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8}) {
      const int64_t elements = (1 << 20) / static_cast<int64_t>(SizeOf(dtype)) + 3;
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        const Reduction reduction = MakeReduction(dtype, op, ranks);
        cases.push_back(MakeAllreduce(reduction, ranks, {elements}, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

TEST(Allreduce, PiecesLargerThanTheStaging) {
  std::mt19937_64 random(3);
  const auto make = [&](int ranks, Values values) {
    std::vector<AllreduceCase> cases;
    const Reduction reduction = MakeReduction(DataType::kFloat32, ReduceOp::kAverage, ranks);
    const std::vector<int64_t> elements{3, 300'001, 0, 1, 500'003, 77, 100'000};
    cases.push_back(MakeAllreduce(reduction, ranks, elements, values, random));
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

// Autotune moves the size up to which everybody reads everybody's input, between two operations; a
// user may set it to nothing.
TEST(Allreduce, EitherAlgorithmAtAnySize) {
  std::mt19937_64 random(6);
  const auto make = [&](int ranks, Values values) {
    std::vector<AllreduceCase> cases;
    for (const DataType dtype : {DataType::kFloat32, DataType::kUint8}) {
      const Reduction reduction = MakeReduction(dtype, ReduceOp::kSum, ranks);
      for (const int64_t elements : {0, 1, 14, 256, 257, 5000, 16384, 16385, 100'000}) {
        for (const int64_t direct : {0, 1, 1024, 64 << 10, 1 << 30}) {
          cases.push_back(MakeAllreduce(reduction, ranks, {elements}, values, random));
          cases.back().direct_bytes = direct;
        }
      }
    }
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

// A power of two is exact in any order; what is not, must still be rounded only where the reference
// rounds.
TEST(Allreduce, FactorsAreFoldedIn) {
  std::mt19937_64 random(4);
  const auto make = [&](int ranks, Values values) {
    std::vector<AllreduceCase> cases;
    for (int dtype = 0; dtype < kDataTypes; ++dtype) {
      for (int64_t elements : {5, 5000}) {
        Reduction reduction{static_cast<DataType>(dtype), ReduceOp::kSum, 0.5, 0.3, ranks};
        if (!IsFloating(reduction.dtype)) reduction.postscale = 2;
        cases.push_back(MakeAllreduce(reduction, ranks, {elements, 3}, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

int64_t ResidentBytes() {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Many times what a ring holds at once: several pieces that meet within frames, scaled or not.
TEST(Allreduce, StreamsOfManySegmentsOverLinks) {
  std::mt19937_64 random(6);
  for (Medium medium : {Medium::kInprocTransport, Medium::kTcp}) {
    for (int ranks : {2, 3}) {
      std::vector<AllreduceCase> cases;
      Reduction reduction = MakeReduction(DataType::kFloat32, ReduceOp::kSum, ranks);
      cases.push_back(MakeAllreduce(reduction, ranks, {1'600'003}, Values::kExact, random));
      cases.push_back(
          MakeAllreduce(reduction, ranks, {900'001, 7, 800'001}, Values::kExact, random));
      reduction.prescale = 0.5;
      cases.push_back(
          MakeAllreduce(reduction, ranks, {900'001, 7, 800'001}, Values::kExact, random));
      RunAndCheck(medium, ranks, &cases);
    }
  }
}

// What a large operation has borrowed is small, and does not grow with the tensor.
TEST(Allreduce, LinksKeepLittleMemory) {
  constexpr int64_t kElements = 16 << 20;  // 64 MiB
  World world(Medium::kTcp, 2);
  std::vector<std::vector<float>> data(2, std::vector<float>(kElements, 1.0f));
  const int64_t before = ResidentBytes();
  std::atomic<int64_t> after{0};
  RunRanks(2, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(0, world.Everybody(), &backend));
    CollectiveSpec spec;
    auto* bytes = reinterpret_cast<std::byte*>(data[static_cast<size_t>(r)].data());
    spec.pieces.push_back({bytes, bytes, kElements * 4});
    ASSERT_OK(rank.Run(backend, spec));
    EXPECT_EQ(data[static_cast<size_t>(r)].back(), 2.0f);
    after = std::max<int64_t>(after, ResidentBytes());
  });
  EXPECT_TRUE(after - before < 48 << 20);
}

// Over links the order of the sum depends on the place in the tensor, never on the rank that looks.
void CheckSameBits(Medium medium, int ranks) {
  std::mt19937_64 random(5);
  std::vector<AllreduceCase> cases;
  const Reduction reduction = MakeReduction(DataType::kFloat32, ReduceOp::kSum, ranks);
  cases.push_back(MakeAllreduce(reduction, ranks, {100'003, 9}, Values::kAny, random));
  RunAllreduces(medium, ranks, &cases);
  const AllreduceCase& c = cases[0];
  for (int rank = 1; rank < ranks; ++rank) EXPECT_TRUE(c.outputs[rank] == c.outputs[0]);
  for (size_t i = 0; i < 100'003; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += Get<float>(c.inputs[rank][0], i);
    const double error = std::fabs(Get<float>(c.outputs[0][0], i) - sum);
    if (!EXPECT_TRUE(error <= ranks * 2.0 * ranks * 6e-8)) return;
  }
}

TEST(Allreduce, SameBitsOverLinksAndNearTheSum) {
  for (int ranks : {2, 3, 4, 8}) CheckSameBits(Medium::kInprocTransport, ranks);
}
TEST(Allreduce, SameBitsOnAllHostsAndNearTheSum) {
  for (int ranks : {3, 4, 6, 9, 13}) CheckSameBits(Medium::kHosts, ranks);
}

// Every shape: ranks dealt to hosts at random, so that those of one host are anywhere among all,
// and collectives of every size, also such that lanes or blocks are empty.
TEST(Allreduce, AnyRanksOnAnyHosts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 24; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 8);
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<int>(random() % 4));
    std::vector<AllreduceCase> cases;
    for (const DataType dtype : {DataType::kFloat32, DataType::kInt8, DataType::kFloat64}) {
      for (const int64_t elements : {1, 3, 700, 5000, 40'000, 200'000}) {
        const Reduction reduction = MakeReduction(dtype, ReduceOp::kAverage, ranks);
        cases.push_back(MakeAllreduce(reduction, ranks, {elements, 0, 2}, Values::kExact, random));
      }
    }
    RunAllreduces(Medium::kHosts, ranks, &cases, hosts);
    for (const AllreduceCase& c : cases) CheckAllreduce(Medium::kHosts, c);
  }
}

}  // namespace
}  // namespace hvd::test
