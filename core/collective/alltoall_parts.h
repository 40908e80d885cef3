#pragma once

#include <vector>

#include "base/collective.h"

namespace hvd {

// An alltoall as one rank sees it: what goes to each rank, what comes from each, all tensors together.
struct AlltoallParts {
  AlltoallParts(const CollectiveSpec& spec, int rank, int size);

  int64_t Bytes(int from, int to) const { return bytes[static_cast<size_t>(from * size + to)]; }

  const int size;
  std::vector<int64_t> bytes;            // of all pieces, as CollectiveSpec::rank_bytes
  std::vector<std::vector<Piece>> to;    // by receiver, without outputs
  std::vector<std::vector<Piece>> from;  // by sender, without inputs
  std::vector<Piece> own;                // from the own inputs to the own outputs
};

}  // namespace hvd
