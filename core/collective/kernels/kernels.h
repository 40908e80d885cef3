#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

// Nothing here may be an inline function: the linker could keep the copy compiled for an
// instruction set that this machine lacks.
namespace hvd::kernels {

// For every element: prescales each source, combines the sources in the order given, finishes
// (divisor, postscale) and stores the result to every destination. One pass over memory.
//
// Floats of 16 and 8 bits are computed in float32 and rounded once; float32 in float32; float64 in
// double. A float8_e4m3fn, which has no infinity, stays at its largest number. Integer sums and
// products wrap; an integer factor is applied in double and truncated toward zero (saturating); the
// integer divisor is exact and truncates toward zero. Min and Max propagate NaN as numpy does.
// bool: Sum and Max are "or", Product and Min are "and", factors are ignored. Every instruction set
// gives equal bits; of NaNs that were combined, except for the payload.
//
// A destination may be one of the sources (same address), else they do not overlap. No alignment is
// assumed.
void Reduce(const Reduction& reduction, const void* const* sources, int source_count,
            void* const* destinations, int destination_count, int64_t elements);

// The instruction set that Reduce uses here: "avx512", "avx2" or "baseline".
const char* InstructionSet();

// What follows is what the dispatcher (kernels.cc) and the files compiled once per instruction set
// share.

struct Task {
  const void* const* sources;
  int source_count;
  void* const* destinations;
  int destination_count;
  int64_t elements;
  double prescale;
  double postscale;
  int64_t divisor;
};

using Kernel = void (*)(const Task& task);

enum Combine { kCombineSum, kCombineMin, kCombineMax, kCombineProduct, kCombines };

struct Table {
  const char* instruction_set;
  Kernel kernel[kDataTypes][kCombines];
};

extern const Table kBaselineTable;
extern const Table kAvx2Table;    // x86 only
extern const Table kAvx512Table;  // x86 only

// The tables that this machine can run, the best first. One file per processor family defines it.
std::vector<const Table*> UsableTables();

// The usable table of that name, or null: lets tests compare instruction sets.
const Table* TableFor(const char* instruction_set);

void ReduceWith(const Table& table, const Reduction& reduction, const void* const* sources,
                int source_count, void* const* destinations, int destination_count,
                int64_t elements);

}  // namespace hvd::kernels
