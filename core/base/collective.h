#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace hvd {

// One tensor's part in a collective. In place when input == output.
struct Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t bytes = 0;  // of `input`; a multiple of the element size
};

// What arithmetic an allreduce applies: prescale each input, combine in rank order, scale the result.
// Average is a Sum whose result is divided by `divisor` (floating: folded into postscale; integer: exact
// division of the wrapped sum, truncating toward zero).
struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
};

// A whole collective as the backend sees it: several fused tensors, one kind.
// Ranks are positions in the process set.
struct CollectiveSpec {
  OpKind kind = OpKind::kAllreduce;
  uint64_t sequence = 0;  // number of this collective in its set; equal on every member
  Reduction reduction;    // allreduce
  int root = 0;           // broadcast
  std::vector<Piece> pieces;
  // allgather: rank_bytes[piece][rank] is what that rank contributes; a piece's output holds their sum,
  // in rank order. Empty for the other kinds.
  std::vector<std::vector<int64_t>> rank_bytes;
};

}  // namespace hvd
