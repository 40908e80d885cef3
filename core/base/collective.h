#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rank.h"
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
  Reduction reduction;    // allreduce, reducescatter
  Position root{0};       // broadcast
  // Allreduce: up to so many bytes everybody reads everybody's input whole, larger ones share the work in
  // phases. Equal on every member. Negative: the algorithm's own choice, which also bounds it.
  int64_t direct_bytes = -1;
  std::vector<Piece> pieces;
  // By piece, for n ranks; empty for the other kinds:
  // - allgather: n numbers, what each rank contributes. A piece's output holds all, in rank order.
  // - alltoall: n * n numbers, what rank s sends to rank r at [s * n + r]. A piece's input holds this rank's
  //   parts in the order of the receivers (and then perhaps bytes that are not sent), its output what
  //   arrives in the order of the senders.
  // - reducescatter: n numbers, the part of the input that each rank gets reduced; they add up to the input,
  //   in rank order. A piece's output holds this rank's part only.
  std::vector<std::vector<int64_t>> rank_bytes;
};

}  // namespace hvd
