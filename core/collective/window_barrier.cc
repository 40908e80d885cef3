#include "collective/window_barrier.h"

namespace hvd {

Step WindowBarrier::Advance() {
  if (!begun_) {
    if (!board_->MayBegin(operation_)) return Step::kBlocked;
    board_->Begin(operation_);
    begun_ = true;
  }
  while (arrived_ < board_->size() && board_->HasBegun(arrived_, operation_)) ++arrived_;
  return arrived_ == board_->size() ? Step::kDone : Step::kBlocked;
}

}  // namespace hvd
