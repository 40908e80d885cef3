#include "collective/window/staged_exchange.h"

#include "settings/failpoint.h"

namespace hvd {

StagedExchange::StagedExchange(Board* board, uint64_t chunks, uint64_t given, uint64_t needed)
    : board_(board), operation_(board, chunks), given_(given), needed_(needed) {}

Step StagedExchange::TakeStep() {
  if (!operation_.Begin()) return Step::kBlocked;
  // Nothing is reduced for others; and what has nothing for anybody, or nothing for this rank, is
  // passed over.
  operation_.Skip(Phase::kReduced, 0);
  if (MayLeave()) operation_.Skip(Phase::kCopied, given_);
  operation_.Skip(Phase::kTaken, needed_);
  // What gives staging back to others comes first.
  if (TakeNext() || GiveNext()) {
    failpoint::Hit("chunk");
    return Step::kProgressed;
  }
  if (WorkAlone()) return Step::kProgressed;
  // An operation that began before may not have left yet.
  return operation_.HasPassed(Phase::kCopied) && operation_.complete() ? Step::kDone
                                                                       : Step::kBlocked;
}

bool StagedExchange::TakeNext() {
  if (taken_ == needed_ || !operation_.IsNext(Phase::kTaken, taken_)) return false;
  const Taken result = Take(taken_);
  if (result == Taken::kAll) operation_.Post(Phase::kTaken, taken_++);
  return result != Taken::kNothing;
}

bool StagedExchange::GiveNext() {
  if (staged_ == given_ || !operation_.IsNext(Phase::kCopied, staged_)) return false;
  if (!Has(staged_) || !operation_.MayStage(staged_)) return false;
  Stage(staged_, Staging(rank(), staged_));
  operation_.Post(Phase::kCopied, staged_);
  Given(staged_++);
  return true;
}

}  // namespace hvd
