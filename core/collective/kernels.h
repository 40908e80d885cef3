#pragma once

#include <cstdint>

#include "base/collective.h"

namespace hvd::kernels {

// For every element: prescales each source, combines the sources in the order given, finishes
// (divisor, postscale) and stores the result to every destination. One pass over memory.
//
// float16 and bfloat16 are computed in float32 and rounded once; float32 in float32; float64 in double.
// Integer sums and products wrap; an integer factor is applied in double and truncated toward zero
// (saturating); the integer divisor is exact and truncates toward zero. Min and Max propagate NaN as
// numpy does. bool: Sum and Max are "or", Product and Min are "and", factors are ignored. Every instruction
// set gives equal bits; of NaNs that were combined, except for the payload.
//
// A destination may be one of the sources (same address), else they do not overlap. No alignment is assumed.
void Reduce(const Reduction& reduction, const void* const* sources, int source_count,
            void* const* destinations, int destination_count, int64_t elements);

// The instruction set that Reduce uses here: "avx512", "avx2" or "baseline".
const char* InstructionSet();

}  // namespace hvd::kernels
