#pragma once

#include <cstddef>
#include <vector>

#include "nccl/operation.h"

namespace fake_gpu {

// What one rank puts in: its elements, and its scalar where the op has one.
struct Input {
  const std::byte* data;
  const unsigned char* scale;
};

// Whether this version has the dtype; and whether the GPUs can reduce it.
bool HasDtype(int dtype);
bool CanReduce(int dtype);

// `out` becomes the inputs, reduced in their order. Integers wrap; floats of 16 and 8 bits are
// reduced as floats and rounded once, at the end. Those of 8 bits stay at their largest number.
void Reduce(int dtype, int op, const std::vector<Input>& inputs, size_t count, std::byte* out);

// The scalar by which an average multiplies every input: 1/n in the type, as NCCL has it.
void ScaleOfAverage(int dtype, int nranks, unsigned char* scale);

}  // namespace fake_gpu
