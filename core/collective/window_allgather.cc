#include "collective/window_allgather.h"

#include <algorithm>

#include "base/failpoint.h"
#include "collective/piece_stream.h"

namespace hvd {

namespace {

class InlineAllgather : public StepMachine {
 public:
  InlineAllgather(Board* board, std::vector<PieceStream> parts)
      : board_(board), operation_(board->NextOperation()), parts_(std::move(parts)) {}

  Step Advance() override {
    if (!begun_ && !Begin()) return Step::kBlocked;
    for (; next_ < board_->size(); ++next_) {
      const PieceStream& part = parts_[next_];
      if (next_ == board_->rank() || part.bytes() == 0) continue;
      if (!board_->HasBegun(next_, operation_)) return Step::kBlocked;
      part.Unpack(0, part.bytes(), Slot(next_));
    }
    board_->EndInline();
    return Step::kDone;
  }

 private:
  bool Begin() {
    if (!board_->MayBeginInline(operation_)) return false;
    const PieceStream& own = parts_[board_->rank()];
    own.Pack(0, own.bytes(), Slot(board_->rank()));
    board_->BeginInline(operation_);
    own.Keep(0, own.bytes());
    begun_ = true;
    return true;
  }

  std::byte* Slot(int rank) const {
    return board_->Slot(rank, operation_, static_cast<size_t>(parts_[rank].bytes()));
  }

  Board* const board_;
  const uint64_t operation_;
  const std::vector<PieceStream> parts_;
  bool begun_ = false;
  int next_ = 0;  // the parts of the ranks below have been taken
};

constexpr int64_t kChunk = static_cast<int64_t>(kChunkBytes);

uint64_t ChunksOf(const PieceStream& part) {
  return static_cast<uint64_t>((part.bytes() + kChunk - 1) / kChunk);
}

class ChunkedAllgather : public StepMachine {
 public:
  ChunkedAllgather(Board* board, std::vector<PieceStream> parts)
      : board_(board), operation_(board->NextOperation()), parts_(std::move(parts)) {
    for (int rank = 0; rank < board->size(); ++rank) {
      const uint64_t chunks = ChunksOf(parts_[rank]);
      uint64_t& most = rank == board->rank() ? own_chunks_ : other_chunks_;
      most = std::max(most, chunks);
    }
    first_ = board->NextChunks(Chunks());
  }

  Step Advance() override {
    if (!begun_) {
      if (!board_->MayBegin(operation_)) return Step::kBlocked;
      board_->Begin(operation_);
      begun_ = true;
    }
    // Nothing is reduced, and the chunks that only others have are copied as soon as all own ones are.
    Skip(Phase::kReduced, first_);
    Skip(Phase::kCopied, first_ + own_chunks_);
    Skip(Phase::kTaken, first_ + other_chunks_);
    if (Take() || CopyIn()) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    return board_->AllHave(Phase::kTaken, first_ + Chunks()) ? Step::kDone : Step::kBlocked;
  }

 private:
  uint64_t Chunks() const { return std::max(own_chunks_, other_chunks_); }

  // Passes the rest of the operation in a phase that has nothing left to do here.
  void Skip(Phase phase, uint64_t from) {
    const uint64_t end = first_ + Chunks();
    if (from != end && board_->Mine(phase) == from) board_->Post(phase, end);
  }

  bool CopyIn() {
    if (copied_ == own_chunks_ || board_->Mine(Phase::kCopied) != first_ + copied_) return false;
    if (!board_->MayStage(first_ + copied_)) return false;
    const PieceStream& own = parts_[board_->rank()];
    const int64_t begin = static_cast<int64_t>(copied_) * kChunk;
    const int64_t end = std::min(begin + kChunk, own.bytes());
    own.Pack(begin, end, board_->Staging(board_->rank(), first_ + copied_));
    board_->Post(Phase::kCopied, first_ + ++copied_);
    own.Keep(begin, end);
    return true;
  }

  // Takes one rank's part of the oldest chunk not yet taken.
  bool Take() {
    if (taken_ == other_chunks_ || board_->Mine(Phase::kTaken) != first_ + taken_) return false;
    const int64_t begin = static_cast<int64_t>(taken_) * kChunk;
    const PieceStream& part = parts_[next_];
    if (next_ != board_->rank() && begin < part.bytes()) {
      if (!board_->Has(next_, Phase::kCopied, first_ + taken_ + 1)) return false;
      part.Unpack(begin, std::min(begin + kChunk, part.bytes()), board_->Staging(next_, first_ + taken_));
    }
    if (++next_ == board_->size()) {
      next_ = 0;
      board_->Post(Phase::kTaken, first_ + ++taken_);
    }
    return true;
  }

  Board* const board_;
  const uint64_t operation_;
  const std::vector<PieceStream> parts_;
  uint64_t own_chunks_ = 0;
  uint64_t other_chunks_ = 0;  // of the largest part of another rank
  uint64_t first_ = 0;         // number of the first chunk on the board
  bool begun_ = false;
  uint64_t copied_ = 0;  // own chunks staged
  uint64_t taken_ = 0;   // chunks of which all parts are taken
  int next_ = 0;         // whose part of chunk taken_ is the next to take
};

std::unique_ptr<StepMachine> Make(Board* board, std::vector<PieceStream> parts) {
  const bool fits = std::all_of(parts.begin(), parts.end(), [=](const PieceStream& part) {
    return part.bytes() <= board->inline_bytes();
  });
  if (fits) return std::make_unique<InlineAllgather>(board, std::move(parts));
  return std::make_unique<ChunkedAllgather>(board, std::move(parts));
}

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAllgather(Board* board, const CollectiveSpec& spec) {
  return Make(board, GatherParts(spec, board->rank(), board->size()));
}

std::unique_ptr<StepMachine> MakeWindowBroadcast(Board* board, const CollectiveSpec& spec) {
  return Make(board, BroadcastParts(spec, board->size()));
}

}  // namespace hvd
