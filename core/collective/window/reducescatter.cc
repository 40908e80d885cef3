#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/window/collectives.h"
#include "collective/window/staged_exchange.h"

namespace hvd {

namespace {

using Parts = std::vector<PieceStream>;  // by the rank that gets it reduced

// Whole cache lines of every type, or whole elements where so many ranks share a chunk that each
// gets less. At least two chunks, so that there is something to overlap.
int64_t BlockBytes(const Parts& parts, const BoardShape& shape) {
  const int64_t half = RoundUp(LargestBytes(parts) / 2, 64);
  const int64_t room = shape.chunk_bytes / static_cast<int64_t>(parts.size());
  const int64_t unit = room >= 64 ? 64 : 8;
  return std::min(half, room / unit * unit);
}

// A chunk carries a block of every part but the giver's own.
class ChunkedReducescatter : public StagedExchange {
 public:
  ChunkedReducescatter(Board* board, const Reduction& reduction, int64_t block_bytes, Parts parts)
      : StagedExchange(board, CountChunks(LargestBytes(parts), block_bytes),
                       CountChunks(LargestBytes(parts, board->rank()), block_bytes),
                       CountChunks(parts[board->rank()].bytes(), block_bytes)),
        reducer_(reduction, board->size()),
        parts_(std::move(parts)),
        block_bytes_(block_bytes) {}

 private:
  // The bounds of block `chunk` in a part.
  Range Block(const PieceStream& part, uint64_t chunk) const {
    const int64_t begin = static_cast<int64_t>(chunk) * block_bytes_;
    return {std::min(begin, part.bytes()), std::min(begin + block_bytes_, part.bytes())};
  }

  void Stage(uint64_t chunk, std::byte* staging) override {
    for (int receiver = 0; receiver < size(); ++receiver) {
      if (receiver == rank()) continue;
      const auto [begin, end] = Block(parts_[receiver], chunk);
      parts_[receiver].Pack(begin, end, staging + block_bytes_ * receiver);
    }
  }

  Taken Take(uint64_t chunk) override {
    for (int giver = 0; giver < size(); ++giver) {
      if (giver == rank()) continue;
      if (!HasStaged(giver, chunk)) return Taken::kNothing;
      reducer_.Set(giver, Staging(giver, chunk) + block_bytes_ * rank());
    }
    const auto [begin, end] = Block(parts_[rank()], chunk);
    reducer_.IntoOutputs(parts_[rank()], begin, end);
    return Taken::kAll;
  }

  Reducer reducer_;
  const Parts parts_;
  const int64_t block_bytes_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowReducescatter(Board* board, const CollectiveSpec& spec) {
  Parts parts = ScatterParts(spec, board->rank(), board->size());
  PieceStream all;
  std::vector<int64_t> begins;
  for (const PieceStream& part : parts) {
    begins.push_back(all.bytes());
    all.Append(part);
  }
  if (all.bytes() <= static_cast<int64_t>(kSlotBytes)) {
    const int64_t begin = begins[board->rank()];
    const int64_t end = begin + parts[board->rank()].bytes();
    return MakeInlineReduce(board, spec.reduction, std::move(all), begin, end);
  }
  const int64_t block_bytes = BlockBytes(parts, board->shape());
  return std::make_unique<ChunkedReducescatter>(board, spec.reduction, block_bytes,
                                                std::move(parts));
}

}  // namespace hvd
