#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"
#include "collective/collective_reference.h"
#include "ranks.h"

namespace hvd::test {

// One allreduce: what each rank puts in, and where its results go.
struct AllreduceCase {
  Reduction reduction;
  bool in_place = false;
  int64_t direct_bytes = -1;
  std::vector<std::vector<Bytes>> inputs;   // [rank][piece]
  std::vector<std::vector<Bytes>> outputs;  // [rank][piece]
  std::vector<Bytes> expected;              // [piece]

  // With fresh outputs: a case runs on one medium after the other.
  std::vector<Piece> Pieces(int rank) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < inputs[rank].size(); ++i) {
      Bytes& output = outputs[rank][i];
      output = in_place ? inputs[rank][i] : Bytes(inputs[rank][i].size());
      const std::byte* input = in_place ? output.data() : inputs[rank][i].data();
      pieces.push_back({input, output.data(), static_cast<int64_t>(output.size())});
    }
    return pieces;
  }
};

// What every rank puts into a piece.
inline std::vector<Bytes> Column(const std::vector<std::vector<Bytes>>& inputs, size_t piece) {
  std::vector<Bytes> column;
  for (const auto& of_rank : inputs) column.push_back(of_rank[piece]);
  return column;
}

inline AllreduceCase MakeAllreduce(const Reduction& reduction, int ranks,
                                   const std::vector<int64_t>& elements, Values values,
                                   std::mt19937_64& random) {
  AllreduceCase result;
  result.reduction = reduction;
  result.in_place = random() % 2 == 0;
  for (int rank = 0; rank < ranks; ++rank) {
    result.inputs.emplace_back();
    result.outputs.emplace_back(elements.size());
    for (int64_t count : elements) {
      result.inputs[rank].push_back(RandomTensor(reduction.dtype, count, values, random));
    }
  }
  for (size_t piece = 0; piece < elements.size(); ++piece) {
    result.expected.push_back(Reduced(reduction, Column(result.inputs, piece)));
  }
  return result;
}

inline std::string Describe(const AllreduceCase& c, int rank, size_t piece) {
  return std::string(Name(c.reduction.dtype)) + " " + Name(c.reduction.op) + ", rank " +
         std::to_string(rank) + " of " + std::to_string(c.inputs.size()) + ", piece " +
         std::to_string(piece) + " of " + std::to_string(c.inputs[rank].size()) + ", " +
         std::to_string(c.inputs[rank][piece].size()) + " bytes";
}

// NCCL averages floats by multiplying each input by a factor.
inline bool IsRight(Medium medium, const Reduction& reduction, const Bytes& result,
                    const Bytes& expected) {
  const bool scaled = reduction.divisor != 1 || reduction.prescale * reduction.postscale != 1.0;
  if (medium != Medium::kNccl || !scaled) return result == expected;
  return IsClose(reduction.dtype, result, expected);
}

// Every output has the bits of the reference.
inline void CheckAllreduce(Medium medium, const AllreduceCase& c) {
  for (size_t piece = 0; piece < c.expected.size(); ++piece) {
    for (size_t rank = 0; rank < c.outputs.size(); ++rank) {
      if (IsRight(medium, c.reduction, c.outputs[rank][piece], c.expected[piece])) continue;
      check::Fail(__FILE__, __LINE__,
                  std::string(Name(medium)) + ": " + Describe(c, static_cast<int>(rank), piece) +
                      " to equal");
    }
  }
}

// Runs the cases one after the other on one set.
inline void RunAllreduces(Medium medium, int ranks, std::vector<AllreduceCase>* cases,
                          const std::vector<int>& hosts = {}) {
  World world(medium, ranks, hosts);
  RunRanks(ranks, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    uint64_t sequence = 0;
    for (AllreduceCase& c : *cases) {
      CollectiveSpec spec;
      spec.sequence = sequence++;
      spec.reduction = c.reduction;
      spec.direct_bytes = c.direct_bytes;
      spec.pieces = c.Pieces(r);
      ASSERT_OK(rank.Run(backend, spec));
    }
  });
}

// Links combine in the order of the ring, so only exact values can be compared with the reference
// there.
inline Values ValuesFor(Medium medium) { return IsLinks(medium) ? Values::kExact : Values::kAny; }

const std::vector<int> kManyRanks{1, 2, 3, 4, 8};

// By default a size is tried with some numbers of ranks; HVD_TEST_FULL asks for all.
inline std::vector<int> Usually(std::vector<int> ranks) {
  return std::getenv("HVD_TEST_FULL") != nullptr ? kManyRanks : ranks;
}

// Calls run(medium, ranks, &cases) for every medium and each number of ranks, with the cases that
// make(ranks, values) gives. Media that take equal values share them: to make them, and what must
// come out, takes longer than to run them.
template <typename Make, typename Run>
void OnAllMedia(const std::vector<int>& numbers, const Make& make, const Run& run) {
  for (int ranks : numbers) {
    for (Values values : {Values::kAny, Values::kExact}) {
      auto cases = make(ranks, values);
      for (Medium medium : AllMedia()) {
        if (ValuesFor(medium) == values && IsTried(medium, ranks)) run(medium, ranks, &cases);
      }
    }
  }
}

inline Reduction MakeReduction(DataType dtype, ReduceOp op, int ranks) {
  Reduction reduction{dtype, op, 1.0, 1.0, 1};
  if (op == ReduceOp::kAverage) reduction.divisor = ranks;
  return reduction;
}

}  // namespace hvd::test
