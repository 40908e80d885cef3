#pragma once

#include <cstddef>
#include <vector>

#include "base/types.h"
#include "collective/piece_stream.h"

namespace hvd {

// Combines so many operands, in their order, in one pass over memory.
class Reducer {
 public:
  Reducer(const Reduction& reduction, int operands);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Where an operand of the next stretch begins. Null, as at first: it is the stream's input.
  void Set(int operand, const std::byte* begin) { begins_[operand] = begin; }

  // [begin, end) of a stream: into its outputs, and to `copy` if there is one; or to memory alone.
  void IntoOutputs(const PieceStream& stream, int64_t begin, int64_t end,
                   std::byte* copy = nullptr);
  void IntoMemory(const PieceStream& stream, int64_t begin, int64_t end, std::byte* to);
  // Where no operand is a stream's input.
  void IntoMemory(std::byte* to, int64_t bytes);

 private:
  void Run(const std::byte* input, int64_t at, std::byte* to, std::byte* copy, int64_t bytes);

  const Reduction reduction_;
  const int64_t element_;
  const size_t operands_;
  std::vector<const void*> addresses_;  // what the kernels get, and behind it:
  const void** const begins_;           // where the operands begin
};

}  // namespace hvd
