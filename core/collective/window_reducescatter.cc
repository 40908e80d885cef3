#include "collective/window_reducescatter.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "collective/kernels.h"
#include "collective/piece_stream.h"

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
    own.ForEach(0, own.bytes(), [this](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
      for (int rank = 0; rank < board_->size(); ++rank) sources_[rank] = Slot(rank) + own_begin_ + at;
      void* destination = output;
      kernels::Reduce(reduction_, sources_.data(), board_->size(), &destination, 1, bytes / element_);
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

class ChunkedReducescatter : public StepMachine {
 public:
  ChunkedReducescatter(Board* board, const Reduction& reduction, Parts parts)
      : board_(board),
        operation_(board->NextOperation()),
        reduction_(reduction),
        parts_(std::move(parts)),
        element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
        segment_bytes_(SegmentBytes(parts_)),
        sources_(static_cast<size_t>(board->size())) {
    for (int rank = 0; rank < board->size(); ++rank) {
      const auto segments =
          static_cast<uint64_t>((parts_[rank].bytes() + segment_bytes_ - 1) / segment_bytes_);
      uint64_t& most = rank == board->rank() ? own_chunks_ : other_chunks_;
      most = std::max(most, segments);
    }
    first_ = board->NextChunks(Chunks());
  }

  Step Advance() override {
    if (!begun_) {
      if (!board_->MayBegin(operation_)) return Step::kBlocked;
      board_->Begin(operation_);
      begun_ = true;
    }
    // Nobody reads a result here; chunks with nothing of the others' are not copied, chunks with nothing of
    // the own part not taken.
    Skip(Phase::kReduced, first_);
    Skip(Phase::kCopied, first_ + other_chunks_);
    Skip(Phase::kTaken, first_ + own_chunks_);
    // What gives staging back to others comes first.
    if (Reduce() || CopyIn()) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    return board_->AllHave(Phase::kTaken, first_ + Chunks()) ? Step::kDone : Step::kBlocked;
  }

 private:
  // Whole cache lines of every type. At least two chunks, so that there is something to overlap.
  static int64_t SegmentBytes(const Parts& parts) {
    int64_t largest = 0;
    for (const PieceStream& part : parts) largest = std::max(largest, part.bytes());
    const int64_t half = (largest / 2 + 63) / 64 * 64;
    const int64_t room = static_cast<int64_t>(kChunkBytes / parts.size()) / 64 * 64;
    return std::min(half, room);
  }

  uint64_t Chunks() const { return std::max(own_chunks_, other_chunks_); }

  // Passes the rest of the operation in a phase that has nothing left to do here.
  void Skip(Phase phase, uint64_t from) {
    const uint64_t end = first_ + Chunks();
    if (from != end && board_->Mine(phase) == from) board_->Post(phase, end);
  }

  // The bounds of segment `chunk` in a part.
  std::pair<int64_t, int64_t> Segment(const PieceStream& part, uint64_t chunk) const {
    const int64_t begin = static_cast<int64_t>(chunk) * segment_bytes_;
    return {std::min(begin, part.bytes()), std::min(begin + segment_bytes_, part.bytes())};
  }

  // Where the segments of `receiver` lie in the staging of `rank`.
  std::byte* Staging(int rank, uint64_t chunk, int receiver) const {
    return board_->Staging(rank, first_ + chunk) + segment_bytes_ * receiver;
  }

  bool CopyIn() {
    if (copied_ == other_chunks_ || board_->Mine(Phase::kCopied) != first_ + copied_) return false;
    if (!board_->MayStage(first_ + copied_)) return false;
    for (int receiver = 0; receiver < board_->size(); ++receiver) {
      if (receiver == board_->rank()) continue;
      const auto [begin, end] = Segment(parts_[receiver], copied_);
      parts_[receiver].Pack(begin, end, Staging(board_->rank(), copied_, receiver));
    }
    board_->Post(Phase::kCopied, first_ + ++copied_);
    return true;
  }

  bool Reduce() {
    if (reduced_ == own_chunks_ || board_->Mine(Phase::kTaken) != first_ + reduced_) return false;
    if (!board_->AllHave(Phase::kCopied, first_ + reduced_ + 1)) return false;
    const PieceStream& own = parts_[board_->rank()];
    const auto [begin, end] = Segment(own, reduced_);
    own.ForEach(begin, end, [this](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
      for (int rank = 0; rank < board_->size(); ++rank) {
        sources_[rank] = rank == board_->rank() ? input : Staging(rank, reduced_, board_->rank()) + at;
      }
      void* destination = output;
      kernels::Reduce(reduction_, sources_.data(), board_->size(), &destination, 1, bytes / element_);
    });
    board_->Post(Phase::kTaken, first_ + ++reduced_);
    return true;
  }

  Board* const board_;
  const uint64_t operation_;
  const Reduction reduction_;
  const Parts parts_;
  const int64_t element_;
  const int64_t segment_bytes_;
  std::vector<const void*> sources_;
  uint64_t own_chunks_ = 0;
  uint64_t other_chunks_ = 0;  // of the largest part of another rank
  uint64_t first_ = 0;         // number of the first chunk on the board
  bool begun_ = false;
  uint64_t copied_ = 0;   // chunks with all of the others' segments staged
  uint64_t reduced_ = 0;  // segments of the own part
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
  return std::make_unique<ChunkedReducescatter>(board, spec.reduction, std::move(parts));
}

}  // namespace hvd
