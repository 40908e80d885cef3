#include "collective/reducer.h"
#include "collective/window/collectives.h"
#include "collective/window/operation.h"

namespace hvd {

namespace {

class InlineReduce : public StepMachine {
 public:
  InlineReduce(Board* board, const Reduction& reduction, PieceStream stream, int64_t begin,
               int64_t end)
      : size_(board->size()),
        operation_(board),
        reducer_(reduction, size_),
        stream_(std::move(stream)),
        begin_(begin),
        end_(end) {}

 private:
  Step TakeStep() override {
    if (!operation_.Begin(stream_)) return Step::kBlocked;
    for (; arrived_ < size_; ++arrived_) {
      if (!operation_.HasBegun(arrived_)) return Step::kBlocked;
      reducer_.Set(arrived_, operation_.Slot(arrived_, stream_.bytes()) + begin_);
    }
    reducer_.IntoOutputs(stream_, begin_, end_);
    operation_.End();
    return Step::kDone;
  }

  const int size_;
  SlotOperation operation_;
  Reducer reducer_;
  const PieceStream stream_;
  const int64_t begin_;
  const int64_t end_;
  int arrived_ = 0;  // the ranks below have begun
};

}  // namespace

std::unique_ptr<StepMachine> MakeInlineReduce(Board* board, const Reduction& reduction,
                                              PieceStream stream, int64_t begin, int64_t end) {
  return std::make_unique<InlineReduce>(board, reduction, std::move(stream), begin, end);
}

}  // namespace hvd
