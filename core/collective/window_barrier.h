#pragma once

#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Done when every member has begun the same barrier.
class WindowBarrier : public StepMachine {
 public:
  explicit WindowBarrier(Board* board) : board_(board), operation_(board->NextOperation()) {}
  Step Advance() override;

 private:
  Board* const board_;
  const uint64_t operation_;
  bool begun_ = false;
  int arrived_ = 0;  // the ranks below have begun
};

}  // namespace hvd
