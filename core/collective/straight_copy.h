#pragma once

#include <algorithm>
#include <utility>

#include "base/step.h"
#include "collective/piece_stream.h"

namespace hvd {

// What stays on this rank, copied from inputs to outputs a step at a time.
class StraightCopy {
 public:
  explicit StraightCopy(PieceStream stream) : stream_(std::move(stream)) {}

  // Copies the next stretch; false when there is none.
  bool Next() {
    if (at_ == stream_.bytes()) return false;
    const int64_t end = std::min(at_ + kStretch, stream_.bytes());
    stream_.Keep(at_, end);
    at_ = end;
    return true;
  }

 private:
  static constexpr int64_t kStretch = kStepBytes / 2;  // read once, written once

  PieceStream stream_;
  int64_t at_ = 0;  // copied so far
};

}  // namespace hvd
