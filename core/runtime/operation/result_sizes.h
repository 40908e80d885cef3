#pragma once

#include <string>
#include <vector>

#include "negotiate/message.h"

namespace hvd {

// The operations whose result has another shape than the input: what negotiation has said of their
// sizes.
struct ResultSizes {
  std::vector<int64_t> rank_bytes;  // as CollectiveSpec::rank_bytes
  int64_t all_bytes = 0;            // the sum of these
  int64_t input_bytes = 0;          // of this rank's input that take part
  Shape shape;                      // of this rank's result
  std::vector<int64_t> received;    // alltoall: rows from each member
};

bool HasResultSizes(OpKind kind);

// For tensor `tensor` of this rank's `request`, which is known as `name`, in a set of `members`,
// where it has position `rank`. Nothing is sized by `sizes` unless this rank's part of them is what
// its own request says. An error (kAborted) means that the response is corrupt.
Status FindResultSizes(const negotiate::Request& request, const std::string& name, size_t tensor,
                       const std::vector<int64_t>& sizes, int members, int rank,
                       ResultSizes* result);

}  // namespace hvd
