#include "negotiate/schedule_review.h"

#include <algorithm>
#include <utility>

namespace hvd::negotiate {
namespace {

// Whether so many batches are worth a change from so many.
bool IsFewer(size_t batches, size_t than) { return 4 * batches <= 3 * than; }

}  // namespace

void ScheduleReview::Begin(std::vector<int64_t> batch_bytes, int64_t most) {
  if (due()) left_for_ = batch_bytes_.size();
  batch_bytes_ = std::move(batch_bytes);
  most_ = most;
  if (left_for_ > 0) {
    const bool gained = IsFewer(batch_bytes_.size(), left_for_);
    patience_ = gained ? kPatience : std::min(2 * patience_, kMostPatience);
  }
  left_for_ = coarse_steps_ = next_ = 0;
  needed_ = 1;
  bytes_ = batch_bytes_.front();
}

void ScheduleReview::Passed(bool ready) {
  if (++next_ == batch_bytes_.size()) return EndStep();
  const int64_t bytes = batch_bytes_[next_];
  if (ready && bytes <= most_ - bytes_) {
    bytes_ += bytes;
  } else {
    ++needed_;
    bytes_ = bytes;
  }
}

void ScheduleReview::EndStep() {
  if (IsFewer(needed_, batch_bytes_.size())) {
    ++coarse_steps_;
  } else if (coarse_steps_ > 0) {
    --coarse_steps_;
  }
  next_ = 0;
  needed_ = 1;
  bytes_ = batch_bytes_.front();
}

}  // namespace hvd::negotiate
