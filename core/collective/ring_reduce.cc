#include "collective/ring_reduce.h"

#include "collective/kernels.h"

namespace hvd {

namespace {

class RingReduce : public Ring {
 public:
  RingReduce(const Group& group, const CollectiveSpec& spec, PieceStream stream,
             const std::vector<int64_t>& ends, Finished finished)
      : Ring(group, spec.sequence, ends, (group.size() - 1) * (finished == Finished::kGoesRound ? 2 : 1)),
        stream_(std::move(stream)),
        element_(static_cast<int64_t>(SizeOf(spec.reduction.dtype))),
        last_combining_(group.size() - 2),
        goes_round_(finished == Finished::kGoesRound),
        prescales_(spec.reduction.prescale != 1.0) {
    const ReduceOp op = spec.reduction.op == ReduceOp::kAverage ? ReduceOp::kSum : spec.reduction.op;
    scale_ = {spec.reduction.dtype, ReduceOp::kSum, spec.reduction.prescale, 1.0, 1};
    combine_ = {spec.reduction.dtype, op, 1.0, 1.0, 1};
    finish_ = spec.reduction;
    finish_.prescale = 1.0;
    const Status status = group.scratch->Borrow(kScratchBytes, &scratch_);
    if (!status.ok()) Fail(status);
  }

 private:
  // Scratch: the slots of received frames, places for own frames on their way, and one for a scaled input.
  static constexpr size_t kScratchBytes = (kRingSlots + kInFlight + 1) * kFrameBytes;

  std::byte* Place(size_t place) const { return scratch_.data() + place * kFrameBytes; }
  std::byte* Slot(size_t index) const { return Place(index % kRingSlots); }

  // Of a finished block, which is received and sent on where it belongs if it lies there in one.
  std::byte* Finished(size_t index, const RingFrame& frame) const {
    std::byte* output = stream_.Output(frame.begin, frame.end);
    return output != nullptr ? output : Slot(index);
  }

  std::byte* Target(size_t index, const RingFrame& frame) override {
    return frame.step > last_combining_ ? Finished(index, frame) : Slot(index);
  }

  const std::byte* Source(size_t index, const RingFrame& frame) override {
    return frame.step >= last_combining_ ? Finished(index, frame) : Slot(index);
  }

  // Straight from the input, also when the output is the same memory: it is written when the finished block
  // arrives, which has this frame in it.
  const std::byte* SourceOfOwn(size_t index, const RingFrame& frame) override {
    const std::byte* input = prescales_ ? nullptr : stream_.Input(frame.begin, frame.end);
    if (input != nullptr) return input;
    std::byte* to = Place(kRingSlots + index % kInFlight);
    if (prescales_) {
      Scale(frame, to);
    } else {
      stream_.Pack(frame.begin, frame.end, to);
    }
    return to;
  }

  void Consume(size_t index, const RingFrame& frame) override {
    if (frame.step > last_combining_) {
      if (Finished(index, frame) == Slot(index)) stream_.Unpack(frame.begin, frame.end, Slot(index));
      return;
    }
    std::byte* arrived = Slot(index);
    std::byte* scaled = Place(kRingSlots + kInFlight);
    if (prescales_) Scale(frame, scaled);
    const bool last = frame.step == last_combining_;
    const bool sent_from_slot = last && goes_round_ && Finished(index, frame) == arrived;
    stream_.ForEach(frame.begin, frame.end,
                    [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
                      const void* const sources[] = {arrived + at, prescales_ ? scaled + at : input};
                      void* const destinations[] = {last ? output : arrived + at, arrived + at};
                      kernels::Reduce(last ? finish_ : combine_, sources, 2, destinations,
                                      sent_from_slot ? 2 : 1, bytes / element_);
                    });
  }

  // The prescaled inputs of a frame.
  void Scale(const RingFrame& frame, std::byte* to) const {
    stream_.ForEach(frame.begin, frame.end,
                    [&](const std::byte* input, std::byte*, int64_t at, int64_t bytes) {
                      const void* source = input;
                      void* destination = to + at;
                      kernels::Reduce(scale_, &source, 1, &destination, 1, bytes / element_);
                    });
  }

  const PieceStream stream_;
  const int64_t element_;
  const int last_combining_;  // the step whose frames are finished here
  const bool goes_round_;
  const bool prescales_;
  Reduction scale_;
  Reduction combine_;
  Reduction finish_;
  ScratchPool::Lease scratch_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeRingReduce(const Group& group, const CollectiveSpec& spec,
                                            PieceStream stream, const std::vector<int64_t>& ends,
                                            Finished finished) {
  return std::make_unique<RingReduce>(group, spec, std::move(stream), ends, finished);
}

}  // namespace hvd
