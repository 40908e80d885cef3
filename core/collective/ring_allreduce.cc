#include "collective/ring_allreduce.h"

#include <algorithm>

#include "collective/direct_allreduce.h"
#include "collective/ring_reduce.h"

namespace hvd {

namespace {

// Where each rank's block ends: whole elements, as even as possible.
std::vector<int64_t> EvenBlocks(int64_t bytes, int64_t element, int size) {
  const int64_t elements = bytes / element;
  std::vector<int64_t> ends;
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t end = elements / size * (rank + 1) + std::min(rank + 1, elements % size);
    ends.push_back(end * element);
  }
  return ends;
}

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllreduce(const Group& group, const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  const int64_t most = spec.direct_bytes < 0 ? kDirectBytes : std::min(spec.direct_bytes, kMostDirectBytes);
  if (stream.bytes() <= most) return MakeDirectAllreduce(group, spec);
  const auto element = static_cast<int64_t>(SizeOf(spec.reduction.dtype));
  const std::vector<int64_t> ends = EvenBlocks(stream.bytes(), element, group.size());
  return MakeRingReduce(group, spec, std::move(stream), ends, Finished::kGoesRound);
}

}  // namespace hvd
