#include "collective/window/staged_exchange.h"

#include "settings/failpoint.h"

namespace hvd {

StagedExchange::StagedExchange(Board* board, uint64_t chunks, uint64_t given, uint64_t needed)
    : board_(board),
      operation_(board->NextOperation()),
      first_(board->NextChunks(chunks)),
      chunks_(chunks),
      given_(given),
      needed_(needed) {}

Step StagedExchange::Advance() {
  if (!begun_) {
    if (!board_->MayBegin(operation_)) return Step::kBlocked;
    board_->Begin(operation_);
    begun_ = true;
  }
  // Nothing is reduced for others; and what has nothing for anybody, or nothing for this rank, is
  // passed over.
  Skip(Phase::kReduced, first_);
  if (MayLeave()) Skip(Phase::kCopied, first_ + given_);
  Skip(Phase::kTaken, first_ + needed_);
  // What gives staging back to others comes first.
  if (TakeNext() || GiveNext()) {
    failpoint::Hit("chunk");
    return Step::kProgressed;
  }
  if (WorkAlone()) return Step::kProgressed;
  // An operation that began before may not have left yet.
  const bool left = board_->Mine(Phase::kCopied) >= first_ + chunks_;
  return left && board_->AllHave(Phase::kTaken, first_ + chunks_) ? Step::kDone : Step::kBlocked;
}

// Passes the rest of the operation in a phase that has nothing left to do here.
void StagedExchange::Skip(Phase phase, uint64_t from) {
  const uint64_t end = first_ + chunks_;
  if (from != end && board_->Mine(phase) == from) board_->Post(phase, end);
}

bool StagedExchange::TakeNext() {
  if (taken_ == needed_ || board_->Mine(Phase::kTaken) != first_ + taken_) return false;
  const Taken result = Take(taken_);
  if (result == Taken::kAll) board_->Post(Phase::kTaken, first_ + ++taken_);
  return result != Taken::kNothing;
}

bool StagedExchange::GiveNext() {
  if (staged_ == given_ || board_->Mine(Phase::kCopied) != first_ + staged_) return false;
  if (!Has(staged_) || !board_->MayStage(first_ + staged_)) return false;
  Stage(staged_, Staging(rank(), staged_));
  board_->Post(Phase::kCopied, first_ + staged_ + 1);
  Given(staged_++);
  return true;
}

}  // namespace hvd
