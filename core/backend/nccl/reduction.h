#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

// Which arithmetic NCCL has, and how it is asked for.

namespace hvd::nccl {

// Whether it carries such an operation. Equal on every rank: of the factors, but of no number of
// ranks. What it does not carry travels through host memory.
bool Carries(OpKind kind, DataType dtype, ReduceOp op, double prescale, double postscale);

// The element type of a reduction.
int TypeOf(DataType dtype);

// A reduction as NCCL has it: one of its own operations, or a sum of inputs that are multiplied
// first.
struct Arithmetic {
  int dtype = 0;
  int op = 0;
  bool scales = false;
  std::byte factor[8] = {};  // in the element type
};
Arithmetic ArithmeticOf(const Reduction& reduction);

}  // namespace hvd::nccl
