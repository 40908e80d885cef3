#pragma once

#include <cstdint>
#include <vector>

#include "base/collective.h"

// What the dispatcher (kernels.cc) and the files compiled once per instruction set share. Nothing here may be
// an inline function: the linker could keep the copy compiled for an instruction set this machine lacks.
namespace hvd::kernels {

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

void ReduceWith(const Table& table, const Reduction& reduction, const void* const* sources, int source_count,
                void* const* destinations, int destination_count, int64_t elements);

}  // namespace hvd::kernels
