#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace hvd {

// Of two vectors a and b.
struct Dots {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};

// The arithmetic of Adasum for one element type. Vectors are kept in a work type: float32 for
// floats of 16 and 8 bits, else the type itself. Every result is computed in double and rounded
// once to the work type, dots stay in double. Plain code with a fixed order of additions: equal
// bits on every machine.
struct AdasumKernels {
  size_t work_bytes;  // of one element of the work type
  // work = raw * factor; `raw` may be `work` where the types are equal. Both aligned.
  void (*load)(const std::byte* raw, std::byte* work, int64_t elements, double factor);
  // Adds the dots of two stretches.
  void (*measure)(const std::byte* a, const std::byte* b, int64_t elements, Dots* dots);
  // a = a_share * a + b_share * b
  void (*combine)(std::byte* a, const std::byte* b, int64_t elements, double a_share,
                  double b_share);
  // result = work * factor; of any alignment.
  void (*store)(const std::byte* work, std::byte* result, int64_t elements, double factor);
};

// Null for a type that is not floating.
const AdasumKernels* AdasumKernelsFor(DataType dtype);

}  // namespace hvd
