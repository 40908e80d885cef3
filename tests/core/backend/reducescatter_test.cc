#include <numeric>

#include "allreduce_cases.h"
#include "check.h"
#include "collective/collective_reference.h"
#include "ranks.h"

namespace hvd::test {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

using Ragged = std::vector<std::vector<int64_t>>;  // elements, [piece][rank]

// How many elements of each piece every rank gets.
using Split = std::vector<int64_t> (*)(int64_t elements, int ranks);

std::vector<int64_t> Even(int64_t elements, int ranks) {
  std::vector<int64_t> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) parts.push_back((elements + rank) / ranks);
  return parts;
}

// The middle ranks get nothing; the last gets most.
std::vector<int64_t> Ends(int64_t elements, int ranks) {
  std::vector<int64_t> parts(static_cast<size_t>(ranks));
  parts.front() = elements / 5;
  parts.back() += elements - elements / 5;
  return parts;
}

std::vector<int64_t> First(int64_t elements, int ranks) {
  std::vector<int64_t> parts(static_cast<size_t>(ranks));
  parts.front() = elements;
  return parts;
}

constexpr Split kSplits[] = {Even, Ends, First};

// One reducescatter: what each rank puts in, and what it gets, also of an allreduce of the same
// inputs.
struct Case {
  Reduction reduction;
  Ragged parts;
  bool in_place = false;
  std::vector<std::vector<Bytes>> inputs;   // [rank][piece]
  std::vector<std::vector<Bytes>> outputs;  // [rank][piece]; in place: the whole input
  std::vector<std::vector<Bytes>> reduced;  // [rank][piece]
  std::vector<Bytes> expected;              // [piece]

  size_t Element() const { return SizeOf(reduction.dtype); }

  // Where the part of `rank` lies in a piece, in bytes.
  size_t Begin(size_t piece, int rank) const {
    const auto& row = parts[piece];
    return static_cast<size_t>(std::accumulate(row.begin(), row.begin() + rank, int64_t{0})) *
           Element();
  }
  size_t Size(size_t piece, int rank) const {
    return static_cast<size_t>(parts[piece][rank]) * Element();
  }

  Bytes Slice(const Bytes& whole, size_t piece, int rank) const {
    const auto begin = whole.begin() + static_cast<int64_t>(Begin(piece, rank));
    return {begin, begin + static_cast<int64_t>(Size(piece, rank))};
  }

  CollectiveSpec Spec(int rank, uint64_t sequence) {
    CollectiveSpec spec;
    spec.kind = OpKind::kReducescatter;
    spec.sequence = sequence;
    spec.reduction = reduction;
    for (size_t piece = 0; piece < parts.size(); ++piece) {
      const Bytes& input = inputs[rank][piece];
      Bytes& output = outputs[rank][piece];
      output = in_place ? input : Bytes(Size(piece, rank));
      spec.pieces.push_back({in_place ? output.data() : input.data(),
                             output.data() + (in_place ? Begin(piece, rank) : 0),
                             static_cast<int64_t>(input.size())});
      spec.shares.push_back({parts[piece], {}});
      for (int64_t& bytes : spec.shares.back().to) bytes *= static_cast<int64_t>(Element());
    }
    return spec;
  }

  CollectiveSpec AllreduceSpec(int rank, uint64_t sequence) {
    CollectiveSpec spec;
    spec.sequence = sequence;
    spec.reduction = reduction;
    reduced[rank].clear();
    for (size_t piece = 0; piece < parts.size(); ++piece) {
      const Bytes& input = inputs[rank][piece];
      reduced[rank].emplace_back(input.size());
      spec.pieces.push_back(
          {input.data(), reduced[rank][piece].data(), static_cast<int64_t>(input.size())});
    }
    return spec;
  }

  // What the memory of the output must hold: in place, nothing but the own part may have changed.
  bool IsRight(Medium medium, size_t piece, int rank, const Bytes& expected) const {
    const Bytes& output = outputs[rank][piece];
    if (!in_place) return test::IsRight(medium, reduction, output, expected);
    Bytes whole = inputs[rank][piece];
    std::copy(expected.begin(), expected.end(),
              whole.begin() + static_cast<int64_t>(Begin(piece, rank)));
    return test::IsRight(medium, reduction, output, whole);
  }
};

Case MakeCase(const Reduction& reduction, const Ragged& parts, int ranks, Values values,
              std::mt19937_64& random) {
  Case result;
  result.reduction = reduction;
  result.parts = parts;
  result.in_place = random() % 2 == 0;
  const auto size = static_cast<size_t>(ranks);
  result.inputs.resize(size);
  result.reduced.resize(size);
  result.outputs.assign(size, std::vector<Bytes>(parts.size()));
  for (auto& inputs : result.inputs) {
    for (const auto& row : parts) {
      const int64_t elements = std::accumulate(row.begin(), row.end(), int64_t{0});
      inputs.push_back(RandomTensor(reduction.dtype, elements, values, random));
    }
  }
  for (size_t piece = 0; piece < parts.size(); ++piece) {
    result.expected.push_back(Reduced(reduction, Column(result.inputs, piece)));
  }
  return result;
}

std::string Describe(Medium medium, const Case& c, size_t piece, size_t rank) {
  return std::string(Name(medium)) + ": " + Name(c.reduction.dtype) + " " + Name(c.reduction.op) +
         ", rank " + std::to_string(rank) + " of " + std::to_string(c.inputs.size()) + ", piece " +
         std::to_string(piece) + " of " + std::to_string(c.parts.size()) + ", " +
         std::to_string(c.parts[piece][rank]) + " elements of " +
         std::to_string(c.inputs[rank][piece].size() / c.Element()) +
         (c.in_place ? ", in place" : "");
}

void Check(Medium medium, const Case& c) {
  for (size_t piece = 0; piece < c.parts.size(); ++piece) {
    const Bytes& expected = c.expected[piece];
    for (size_t rank = 0; rank < c.outputs.size(); ++rank) {
      const auto r = static_cast<int>(rank);
      if (!c.IsRight(medium, piece, r, c.Slice(expected, piece, r))) {
        check::Fail(__FILE__, __LINE__,
                    Describe(medium, c, piece, rank) + " to equal the reference");
      }
      if (!c.IsRight(medium, piece, r, c.Slice(c.reduced[rank][piece], piece, r))) {
        check::Fail(__FILE__, __LINE__,
                    Describe(medium, c, piece, rank) + " to equal the allreduce");
      }
    }
  }
}

// Runs the cases, each followed by an allreduce of the same inputs, one after the other on one set.
void Run(Medium medium, int ranks, std::vector<Case>* cases, const std::vector<int>& hosts = {}) {
  World world(medium, ranks, hosts);
  RunRanks(ranks, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    uint64_t sequence = 0;
    for (Case& c : *cases) {
      ASSERT_OK(rank.Run(backend, c.Spec(r, sequence++)));
      ASSERT_OK(rank.Run(backend, c.AllreduceSpec(r, sequence++)));
    }
  });
}

void RunAndCheck(Medium medium, int ranks, std::vector<Case>* cases) {
  Run(medium, ranks, cases);
  for (const Case& c : *cases) Check(medium, c);
}

Ragged SplitAll(const std::vector<int64_t>& elements, int ranks, size_t first_split) {
  Ragged parts;
  for (size_t i = 0; i < elements.size(); ++i) {
    parts.push_back(kSplits[(first_split + i) % std::size(kSplits)](elements[i], ranks));
  }
  return parts;
}

Reduction MakeReduction(DataType dtype, ReduceOp op, int ranks) {
  Reduction reduction{dtype, op, 1.0, 1.0, 1};
  if (op == ReduceOp::kAverage) reduction.divisor = ranks;
  return reduction;
}

void EveryTypeAndOp(const std::vector<int64_t>& elements, const std::vector<int>& numbers) {
  std::mt19937_64 random(1);
  const auto make = [&](int ranks, Values values) {
    std::vector<Case> cases;
    for (int dtype = 0; dtype < kDataTypes; ++dtype) {
      for (ReduceOp op : kOps) {
        const auto type = static_cast<DataType>(dtype);
        if (type == DataType::kBool && op == ReduceOp::kAverage) continue;
        const Ragged parts = SplitAll(elements, ranks, cases.size());
        cases.push_back(MakeCase(MakeReduction(type, op, ranks), parts, ranks, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(Usually(numbers), make, RunAndCheck);
}

TEST(Reducescatter, NoPieces) { EveryTypeAndOp({}, kManyRanks); }
TEST(Reducescatter, Empty) { EveryTypeAndOp({0}, kManyRanks); }
TEST(Reducescatter, OneElement) { EveryTypeAndOp({1}, {1, 3, 8}); }
TEST(Reducescatter, Seven) { EveryTypeAndOp({7}, {2, 4}); }
TEST(Reducescatter, Thousand) { EveryTypeAndOp({1023}, {1, 3, 8}); }
TEST(Reducescatter, TwentyThousand) { EveryTypeAndOp({20'011}, {2, 4}); }
TEST(Reducescatter, SmallPieces) { EveryTypeAndOp({1, 0, 3, 17, 0, 100, 1}, {1, 3, 8}); }
TEST(Reducescatter, MixedPieces) { EveryTypeAndOp({3, 0, 5000, 1, 64, 19'001, 0, 777}, {2, 3, 4}); }

TEST(Reducescatter, LargerThanTheStaging) {
  std::mt19937_64 random(2);
  const auto make = [&](int ranks, Values values) {
    std::vector<Case> cases;
    for (size_t split = 0; split < std::size(kSplits); ++split) {
      for (DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
        const Reduction reduction = MakeReduction(dtype, ReduceOp::kAverage, ranks);
        const Ragged parts = SplitAll({3, 300'001, 0, 1, 200'003, 77}, ranks, split);
        cases.push_back(MakeCase(reduction, parts, ranks, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

// Besides the usual shapes: a host for every rank, and hosts whose ranks lie anywhere among all.
TEST(Reducescatter, OnHostsOfManyShapes) {
  std::mt19937_64 random(5);
  std::vector<std::vector<int>> shapes = HostShapes();
  shapes.insert(shapes.end(), {{0, 1, 2}, {0, 1, 0, 2, 1}, {0, 0, 0, 1}, {0, 1, 2, 3, 4, 4}});
  for (const std::vector<int>& hosts : shapes) {
    const auto ranks = static_cast<int>(hosts.size());
    std::vector<Case> cases;
    for (size_t split = 0; split < std::size(kSplits); ++split) {
      for (DataType dtype : {DataType::kFloat64, DataType::kFloat16, DataType::kInt8}) {
        Reduction reduction = MakeReduction(dtype, ReduceOp::kAverage, ranks);
        if (split == 1) reduction.prescale = 2;
        for (const std::vector<int64_t>& elements :
             std::vector<std::vector<int64_t>>{{9000}, {3, 150'001, 0, 70'003}}) {
          const Ragged parts = SplitAll(elements, ranks, split);
          cases.push_back(MakeCase(reduction, parts, ranks, Values::kExact, random));
        }
      }
    }
    Run(Medium::kHosts, ranks, &cases, hosts);
    for (const Case& c : cases) Check(Medium::kHosts, c);
  }
}

// Also where no order but its own gives them.
TEST(Reducescatter, BetweenHostsItHasTheBitsOfAnAllreduce) {
  std::mt19937_64 random(6);
  for (const std::vector<int>& hosts : HostShapes()) {
    const auto ranks = static_cast<int>(hosts.size());
    std::vector<Case> cases;
    for (DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
      const Reduction reduction = MakeReduction(dtype, ReduceOp::kAverage, ranks);
      cases.push_back(MakeCase(reduction, {Even(200'003, ranks)}, ranks, Values::kAny, random));
      cases.back().in_place = false;
    }
    Run(Medium::kHosts, ranks, &cases, hosts);
    for (const Case& c : cases) {
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(c.outputs[rank][0] == c.Slice(c.reduced[rank][0], 0, rank));
      }
    }
  }
}

// A power of two is exact in any order; what is not, must still be rounded only where the reference
// rounds.
TEST(Reducescatter, FactorsAreFoldedIn) {
  std::mt19937_64 random(3);
  const auto make = [&](int ranks, Values values) {
    std::vector<Case> cases;
    for (int dtype = 0; dtype < kDataTypes; ++dtype) {
      for (int64_t elements : {5, 5000, 40'000}) {
        Reduction reduction{static_cast<DataType>(dtype), ReduceOp::kSum, 0.5, 0.3, ranks};
        if (!IsFloating(reduction.dtype)) reduction.postscale = 2;
        const Ragged parts = SplitAll({elements, 3}, ranks, cases.size());
        cases.push_back(MakeCase(reduction, parts, ranks, values, random));
      }
    }
    return cases;
  };
  OnAllMedia(kManyRanks, make, RunAndCheck);
}

// Small ones are reduced in rank order over links too; large ones are near the sum.
TEST(Reducescatter, AnyValuesOverLinks) {
  std::mt19937_64 random(4);
  for (int ranks : {2, 3, 4, 8}) {
    const Reduction reduction = MakeReduction(DataType::kFloat32, ReduceOp::kSum, ranks);
    std::vector<Case> cases;
    cases.push_back(MakeCase(reduction, {Even(1000, ranks)}, ranks, Values::kAny, random));
    cases.push_back(MakeCase(reduction, {Even(100'003, ranks)}, ranks, Values::kAny, random));
    for (Case& c : cases) c.in_place = false;
    Run(Medium::kInprocTransport, ranks, &cases);
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      for (int rank = 0; rank < ranks; ++rank) {
        const Bytes expected = c.Slice(c.expected[0], 0, rank);
        if (i == 0) EXPECT_TRUE(c.outputs[rank][0] == expected);
        for (size_t e = 0; e < expected.size() / sizeof(float); ++e) {
          const double error =
              std::fabs(Get<float>(c.outputs[rank][0], e) - Get<float>(expected, e));
          if (!EXPECT_TRUE(error <= ranks * 2.0 * ranks * 6e-8)) return;
        }
      }
    }
  }
}

TEST(Reducescatter, SizesThatDisagreeWithTheInputFail) {
  World world(Medium::kInprocWindow, 1);
  Rank rank(&world, 0);
  Backend* backend = nullptr;
  ASSERT_OK(rank.Join(1, {0}, &backend));
  CollectiveSpec spec;
  spec.kind = OpKind::kReducescatter;
  Bytes data(8);
  spec.pieces.push_back({data.data(), data.data(), 8});
  spec.shares = {{{4}, {}}};
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
  spec.shares = {{{8, 0}, {}}};
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
}

}  // namespace
}  // namespace hvd::test
