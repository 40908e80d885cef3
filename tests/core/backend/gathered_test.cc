// A small allreduce of which every rank has everybody's input already gives the bits of one that
// exchanges the data.

#include "allreduce_cases.h"

namespace hvd::test {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr Medium kMedia[] = {Medium::kInprocWindow, Medium::kInprocTransport, Medium::kShmWindow,
                             Medium::kTcp, Medium::kHosts};

std::vector<std::byte> Gathered(const AllreduceCase& c) {
  std::vector<std::byte> gathered;
  for (const std::vector<Bytes>& inputs : c.inputs) {
    for (const Bytes& input : inputs) gathered.insert(gathered.end(), input.begin(), input.end());
  }
  return gathered;
}

// Each case one way and the other.
void Compare(Medium medium, int ranks, std::vector<AllreduceCase> cases,
             const std::vector<int>& hosts = {}) {
  std::vector<AllreduceCase> carried = cases;
  World world(medium, ranks, hosts);
  RunRanks(ranks, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    uint64_t sequence = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      CollectiveSpec spec;
      spec.reduction = cases[i].reduction;
      spec.direct_bytes = cases[i].direct_bytes;
      spec.sequence = sequence++;
      spec.pieces = cases[i].Pieces(r);
      ASSERT_OK(rank.Run(backend, spec));
      EXPECT_TRUE(backend->TakesGathered(spec));
      spec.sequence = sequence++;
      spec.pieces = carried[i].Pieces(r);
      spec.gathered = Gathered(cases[i]);
      backend->Combine(spec);
    }
  });
  for (size_t i = 0; i < cases.size(); ++i) {
    for (int r = 0; r < ranks; ++r) {
      for (size_t piece = 0; piece < cases[i].outputs[r].size(); ++piece) {
        if (carried[i].outputs[r][piece] == cases[i].outputs[r][piece]) continue;
        check::Fail(__FILE__, __LINE__,
                    std::string(Name(medium)) + ": " + Describe(carried[i], r, piece) +
                        " to have the bits of what is exchanged");
      }
    }
  }
}

std::vector<AllreduceCase> Cases(int ranks, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<AllreduceCase> cases;
  const auto add = [&](const Reduction& reduction, const std::vector<int64_t>& elements) {
    cases.push_back(MakeAllreduce(reduction, ranks, elements, Values::kAny, random));
    cases.back().in_place = false;
    cases.back().direct_bytes = random() % 3 == 0 ? 1 << 10 : -1;
  };
  for (int number = 0; number < kDataTypes; ++number) {
    const auto dtype = static_cast<DataType>(number);
    for (const ReduceOp op : kOps) {
      if (dtype == DataType::kBool && op == ReduceOp::kAverage) continue;
      const Reduction reduction = MakeReduction(dtype, op, ranks);
      add(reduction, {1});
      add(reduction, {7, 0, 3, 17});
    }
    add({dtype, ReduceOp::kSum, 0.3, 0.7, 1}, {5, 50});
    add({dtype, ReduceOp::kSum, 3.0, 1.0, ranks}, {13});
  }
  return cases;
}

TEST(Gathered, HasTheBitsOfWhatIsExchanged) {
  for (const Medium medium : kMedia) {
    for (const int ranks : {2, 3, 4, 8}) Compare(medium, ranks, Cases(ranks, 1));
  }
}

// So many that they are combined level by level, some of them from outside the core.
TEST(Gathered, HasThemAmongManyRanks) {
  for (const int ranks : {13, 16, 22}) Compare(Medium::kInprocTransport, ranks, Cases(ranks, 2));
}

TEST(Gathered, HasThemOnHostsOfAnyShape) {
  const std::vector<std::vector<int>> shapes = {
      {0, 1},          {0, 0, 1, 1},       {0, 0, 1, 2, 2, 2},
      {0, 1, 0, 1, 0}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14}};
  for (const std::vector<int>& hosts : shapes) {
    const int ranks = static_cast<int>(hosts.size());
    Compare(Medium::kHosts, ranks, Cases(ranks, 3), hosts);
  }
}

}  // namespace
}  // namespace hvd::test
