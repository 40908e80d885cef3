#include "collective/ring_reducescatter.h"

#include <algorithm>

#include "collective/direct_reducescatter.h"
#include "collective/piece_stream.h"
#include "collective/ring_allreduce.h"
#include "collective/ring_reduce.h"

namespace hvd {

namespace {

int64_t Bytes(const std::vector<Piece>& part) {
  int64_t bytes = 0;
  for (const Piece& piece : part) bytes += piece.bytes;
  return bytes;
}

bool IsSmall(const std::vector<Piece>& part) { return Bytes(part) <= kDirectBytes; }

}  // namespace

std::unique_ptr<StepMachine> MakeRingReducescatter(const Group& group, const CollectiveSpec& spec) {
  const int size = group.size();
  const std::vector<std::vector<Piece>> parts = ScatterParts(spec, group.rank(), size);
  if (std::all_of(parts.begin(), parts.end(), IsSmall)) return MakeDirectReducescatter(group, spec);
  // Block b is finished on position b - 1, so that one's part it is.
  std::vector<Piece> stream;
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (int block = 0; block < size; ++block) {
    const std::vector<Piece>& part = parts[static_cast<size_t>((block + size - 1) % size)];
    stream.insert(stream.end(), part.begin(), part.end());
    ends.push_back(end += Bytes(part));
  }
  return MakeRingReduce(group, spec, PieceStream(stream), ends, Finished::kStays);
}

}  // namespace hvd
