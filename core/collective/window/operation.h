#pragma once

#include "collective/piece_stream.h"
#include "collective/window/board.h"

namespace hvd {

// An operation whose data lie whole in the slots of their owners.
class SlotOperation {
 public:
  explicit SlotOperation(Board* board) : board_(board), number_(board->NextOperation()) {}

  // When it is its turn, puts what this rank gives into its slot; true: it is there.
  bool Begin(const PieceStream& given) {
    if (begun_) return true;
    if (!board_->MayBeginInline(number_)) return false;
    given.Pack(0, given.bytes(), Slot(board_->rank(), given.bytes()));
    board_->BeginInline(number_);
    return begun_ = true;
  }
  bool HasBegun(int rank) const { return board_->HasBegun(rank, number_); }
  // What `rank` gives, of so many bytes.
  std::byte* Slot(int rank, int64_t bytes) const {
    return board_->Slot(rank, number_, static_cast<size_t>(bytes));
  }
  // All slots have been read here.
  void End() { board_->EndInline(); }

 private:
  Board* const board_;
  const uint64_t number_;
  bool begun_ = false;
};

// An operation whose data go through the staging, in so many chunks; they are counted from 0. It is
// complete when every member has taken the last one: who reports success knows that all will.
class ChunkedOperation {
 public:
  ChunkedOperation(Board* board, uint64_t chunks)
      : board_(board),
        number_(board->NextOperation()),
        chunks_(chunks),
        first_(board->NextChunks(chunks)) {}

  // Begins it when it is its turn; true: it has begun.
  bool Begin() {
    if (begun_ || !board_->MayBegin(number_)) return begun_;
    board_->Begin(number_);
    return begun_ = true;
  }

  bool HasBegun(int rank) const { return board_->HasBegun(rank, number_); }

  uint64_t chunks() const { return chunks_; }
  std::byte* Staging(int rank, uint64_t chunk) const {
    return board_->Staging(rank, first_ + chunk);
  }
  bool MayStage(uint64_t chunk) const { return board_->MayStage(first_ + chunk); }

  // Whether `chunk` is the next that this rank brings through the phase; it has done so.
  bool IsNext(Phase phase, uint64_t chunk) const { return board_->Mine(phase) == first_ + chunk; }
  void Post(Phase phase, uint64_t chunk) { board_->Post(phase, first_ + chunk + 1); }
  // Passes the chunks from `chunk` on, once it is the next one.
  void Skip(Phase phase, uint64_t chunk) {
    if (chunk < chunks_ && IsNext(phase, chunk)) board_->Post(phase, first_ + chunks_);
  }
  bool HasPassed(Phase phase) const { return board_->Mine(phase) >= first_ + chunks_; }
  // Whether `rank`, or everybody, has brought it through the phase.
  bool Has(int rank, Phase phase, uint64_t chunk) const {
    return board_->Has(rank, phase, first_ + chunk + 1);
  }
  bool AllHave(Phase phase, uint64_t chunk) const {
    return board_->AllHave(phase, first_ + chunk + 1);
  }
  bool complete() const { return board_->AllHave(Phase::kTaken, first_ + chunks_); }

 private:
  Board* const board_;
  const uint64_t number_;
  const uint64_t chunks_;
  const uint64_t first_;  // number of the first chunk on the board
  bool begun_ = false;
};

}  // namespace hvd
