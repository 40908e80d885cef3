#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

// Which arithmetic NCCL has, and how it is asked for.

namespace hvd::nccl {

// Whether it carries such an operation. Equal on every rank: of the factors, but of no number of
// ranks. What it does not carry travels through host memory. Reductions of floats of 8 bits need
// GpuRuntime::ReducesFloat8 besides.
bool Carries(OpKind kind, DataType dtype, ReduceOp op, double prescale, double postscale);

// Whether it is a reduction of floats of 8 bits.
bool IsFloat8Reduction(OpKind kind, DataType dtype);

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
