#include "collective/kernels/kernels.h"

#include <cstring>

namespace hvd::kernels {

namespace {

const Table& BestTable() {
  static const Table& best = *UsableTables().front();
  return best;
}

Combine CombineOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return kCombineMin;
    case ReduceOp::kMax:
      return kCombineMax;
    case ReduceOp::kProduct:
      return kCombineProduct;
    default:  // Average is a Sum with a divisor; Adasum is an algorithm of its own and never comes
              // here
      return kCombineSum;
  }
}

// Factors say nothing about truth values.
bool HasFactors(const Reduction& r) {
  return r.dtype != DataType::kBool && (r.prescale != 1.0 || r.postscale != 1.0 || r.divisor != 1);
}

void Copy(const void* source, void* const* destinations, int destination_count, size_t bytes) {
  for (int d = 0; d < destination_count; ++d) {
    if (destinations[d] != source) std::memcpy(destinations[d], source, bytes);
  }
}

}  // namespace

void ReduceWith(const Table& table, const Reduction& reduction, const void* const* sources,
                int source_count, void* const* destinations, int destination_count,
                int64_t elements) {
  if (source_count <= 0 || destination_count <= 0 || elements <= 0) return;
  const bool factors = HasFactors(reduction);
  if (source_count == 1 && !factors) {
    const size_t bytes = static_cast<size_t>(elements) * SizeOf(reduction.dtype);
    return Copy(sources[0], destinations, destination_count, bytes);
  }
  const Task task{sources,
                  source_count,
                  destinations,
                  destination_count,
                  elements,
                  factors ? reduction.prescale : 1.0,
                  factors ? reduction.postscale : 1.0,
                  factors ? reduction.divisor : 1};
  table.kernel[static_cast<int>(reduction.dtype)][CombineOf(reduction.op)](task);
}

void Reduce(const Reduction& reduction, const void* const* sources, int source_count,
            void* const* destinations, int destination_count, int64_t elements) {
  ReduceWith(BestTable(), reduction, sources, source_count, destinations, destination_count,
             elements);
}

const char* InstructionSet() { return BestTable().instruction_set; }

const Table* TableFor(const char* instruction_set) {
  for (const Table* table : UsableTables()) {
    if (std::strcmp(table->instruction_set, instruction_set) == 0) return table;
  }
  return nullptr;
}

}  // namespace hvd::kernels
