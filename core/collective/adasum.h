#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/collective.h"
#include "collective/scratch.h"

namespace hvd {

// In a tree of combinations, rank `into` goes on with the combination of its own and rank `from`'s.
struct TreePair {
  int into;
  int from;
};

// The levels of the tree, see below; rank 0 has the result.
std::vector<std::vector<TreePair>> AdasumTree(int size);

// Starts another collective of the same set; how Adasum is composed of the others, over any seam.
// What is started touches no tensor before it is advanced.
using StartCollective = std::function<std::unique_ptr<StepMachine>(const CollectiveSpec&)>;

// Allreduce with op Adasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation",
// 2020. Two vectors are combined to
//     a * (1 - ab / (2 aa)) + b * (1 - ab / (2 bb)),
// where ab, aa, bb are dot products; a factor whose vector is zero is 1. Parallel vectors give
// about their average, orthogonal ones their sum, and a zero vector changes nothing.
//
// A power of two of ranks combines along the tree of the paper: first the vectors of ranks (0, 1),
// (2, 3) and so on, then the results of (01, 23) and so on, at doubling distances. The paper leaves
// other numbers open; here, with q the largest power of two, ranks q + i are first combined with
// ranks i, then comes the tree over the q results.
//
// Rank r owns slice r of all vectors. An alltoall brings them together, each level of the tree is
// computed on slices, with an allreduce of the dots in between, and an allgather hands out the
// slices. A slice is finished on one rank, so all get the same bits. Floats of 16 and 8 bits are
// computed in float32 and rounded once, at the end; dots are summed in double.
//
// One tensor: dots of several would not be those of one.
std::unique_ptr<StepMachine> MakeAdasum(const CollectiveSpec& spec, int rank, int size,
                                        std::shared_ptr<ScratchPool> scratch,
                                        StartCollective start);

}  // namespace hvd
