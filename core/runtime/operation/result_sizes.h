#pragma once

#include <string>
#include <vector>

#include "base/collective.h"
#include "base/rank.h"
#include "negotiate/message.h"

namespace hvd {

// The operations whose result has another shape than the input: what is known of their sizes. Of an
// alltoall that is at first no more than what this rank sends.
struct ResultSizes {
  Shares shares;
  int64_t all_bytes = 0;          // of all ranks; of an alltoall nobody knows that
  int64_t input_bytes = 0;        // of this rank's input that take part
  Shape shape;                    // of this rank's result
  std::vector<int64_t> sent;      // alltoall: rows to each member
  std::vector<int64_t> received;  // and from each
};

bool HasResultSizes(OpKind kind);

// For tensor `tensor` of this rank's `request`, which is known as `name`, in a set of `members`,
// where it has position `rank`; `sizes` are those of the decision. Nothing is sized by them unless
// this rank's part of them is what its own request says. An error (kAborted) means that the
// response is corrupt.
Status FindResultSizes(const negotiate::Request& request, const std::string& name, size_t tensor,
                       const std::vector<int64_t>& sizes, int members, int rank,
                       ResultSizes* result);

// Of an alltoall, once each member has said how many rows it sends to this one. An error (kAborted)
// is about what *culprit has said.
Status AddReceived(const negotiate::Request& request, const std::string& name, size_t tensor,
                   std::vector<int64_t> rows, ResultSizes* result, Position* culprit);

}  // namespace hvd
