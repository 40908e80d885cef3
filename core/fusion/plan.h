#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rank.h"
#include "base/types.h"

namespace hvd::fusion {

// A tensor that every member has submitted.
struct Ready {
  OpKind kind = OpKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // allreduce and reducescatter, with the factors
  double prescale = 1.0;
  double postscale = 1.0;
  GlobalRank root{0};  // broadcast
  DeviceKind device = DeviceKind::kHost;
  // An allgather counts the parts of all ranks, an alltoall a row, of which all know the size:
  // equal on every rank.
  int64_t bytes = 0;
};

// Which tensors travel together: groups of indices into `ready`, in the order of their first
// members, each in the order of `ready`. Together go allreduces, or reducescatters, of one dtype,
// op and factors; broadcasts of one root; allgathers; alltoalls; always of one kind of device. A
// group has at most `threshold` bytes, unless one tensor alone has more; 0 means that every tensor
// goes alone. Pure: equal on every rank that asks with equal arguments.
std::vector<std::vector<size_t>> Plan(const std::vector<Ready>& ready, int64_t threshold);

}  // namespace hvd::fusion
