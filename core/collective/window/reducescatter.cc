#include <algorithm>
#include <utility>

#include "collective/kernels/kernels.h"
#include "collective/piece_stream.h"
#include "collective/window/collectives.h"
#include "collective/window/staged_exchange.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

using Parts = std::vector<PieceStream>;  // by the rank that gets it reduced

class InlineReducescatter : public StepMachine {
 public:
  InlineReducescatter(Board* board, const Reduction& reduction, Parts parts, int64_t bytes)
      : board_(board),
        operation_(board->NextOperation()),
        reduction_(reduction),
        parts_(std::move(parts)),
        bytes_(static_cast<size_t>(bytes)),
        element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
        sources_(static_cast<size_t>(board->size())) {}

  Step Advance() override {
    if (!begun_ && !Begin()) return Step::kBlocked;
    while (arrived_ < board_->size() && board_->HasBegun(arrived_, operation_)) ++arrived_;
    if (arrived_ < board_->size()) return Step::kBlocked;
    const PieceStream& own = parts_[board_->rank()];
    own.ForEach(0, own.bytes(),
                [this](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
                  for (int rank = 0; rank < board_->size(); ++rank)
                    sources_[rank] = Slot(rank) + own_begin_ + at;
                  void* destination = output;
                  kernels::Reduce(reduction_, sources_.data(), board_->size(), &destination, 1,
                                  bytes / element_);
                });
    board_->EndInline();
    return Step::kDone;
  }

 private:
  // The parts lie in a slot in rank order.
  bool Begin() {
    if (!board_->MayBeginInline(operation_)) return false;
    int64_t begin = 0;
    for (int rank = 0; rank < board_->size(); ++rank) {
      if (rank == board_->rank()) own_begin_ = begin;
      parts_[rank].Pack(0, parts_[rank].bytes(), Slot(board_->rank()) + begin);
      begin += parts_[rank].bytes();
    }
    board_->BeginInline(operation_);
    begun_ = true;
    return true;
  }

  std::byte* Slot(int rank) const { return board_->Slot(rank, operation_, bytes_); }

  Board* const board_;
  const uint64_t operation_;
  const Reduction reduction_;
  const Parts parts_;
  const size_t bytes_;  // of all parts
  const int64_t element_;
  std::vector<const void*> sources_;
  bool begun_ = false;
  int64_t own_begin_ = 0;  // of the own part in a slot
  int arrived_ = 0;        // the ranks below have begun
};

// Whole cache lines of every type, or whole elements where so many ranks share a chunk that each
// gets less. At least two chunks, so that there is something to overlap.
int64_t BlockBytes(const Parts& parts, const BoardShape& shape) {
  const int64_t half = (LargestBytes(parts) / 2 + 63) / 64 * 64;
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
        reduction_(reduction),
        parts_(std::move(parts)),
        element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
        block_bytes_(block_bytes),
        sources_(static_cast<size_t>(board->size())) {}

 private:
  // The bounds of block `chunk` in a part.
  std::pair<int64_t, int64_t> Block(const PieceStream& part, uint64_t chunk) const {
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
      if (giver != rank() && !HasStaged(giver, chunk)) return Taken::kNothing;
    }
    const PieceStream& own = parts_[rank()];
    const auto [begin, end] = Block(own, chunk);
    const int64_t place = block_bytes_ * rank();
    own.ForEach(
        begin, end, [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
          for (int giver = 0; giver < size(); ++giver) {
            sources_[giver] = giver == rank() ? input : Staging(giver, chunk) + place + at;
          }
          void* destination = output;
          kernels::Reduce(reduction_, sources_.data(), size(), &destination, 1, bytes / element_);
        });
    return Taken::kAll;
  }

  const Reduction reduction_;
  const Parts parts_;
  const int64_t element_;
  const int64_t block_bytes_;
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowReducescatter(Board* board, const CollectiveSpec& spec) {
  const auto pieces = ScatterParts(spec, board->rank(), board->size());
  Parts parts(pieces.begin(), pieces.end());
  int64_t bytes = 0;
  for (const PieceStream& part : parts) bytes += part.bytes();
  if (bytes <= static_cast<int64_t>(kSlotBytes)) {
    return std::make_unique<InlineReducescatter>(board, spec.reduction, std::move(parts), bytes);
  }
  const int64_t block_bytes = BlockBytes(parts, board->shape());
  return std::make_unique<ChunkedReducescatter>(board, spec.reduction, block_bytes,
                                                std::move(parts));
}

}  // namespace hvd
