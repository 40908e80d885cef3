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
    const Status status = group.scratch->Borrow(kBounce + static_cast<size_t>(stream_.bytes()), &scratch_);
    if (!status.ok()) Fail(status);
  }

 private:
  // Frames to be combined land in a few buffers of their own, in front of the stream's copy.
  static constexpr size_t kBounce = kInFlight * kFrameBytes;

  std::byte* Work(int64_t at) const { return scratch_.data() + kBounce + at; }

  std::byte* Target(size_t index, const RingFrame& frame) override {
    if (frame.step > last_combining_) return Work(frame.begin);
    return scratch_.data() + index % kInFlight * kFrameBytes;
  }

  const std::byte* Source(const RingFrame& frame, bool own) override {
    if (own) CopyOwn(frame.begin, frame.end);
    return Work(frame.begin);
  }

  void Consume(size_t index, const RingFrame& frame) override {
    if (frame.step > last_combining_) {
      stream_.Unpack(frame.begin, frame.end, Work(frame.begin));
      return;
    }
    if (prescales_) CopyOwn(frame.begin, frame.end);
    const std::byte* arrived = Target(index, frame);
    const bool last = frame.step == last_combining_;
    stream_.ForEach(frame.begin, frame.end,
                    [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
                      std::byte* work = Work(frame.begin + at);
                      const void* const sources[] = {arrived + at, prescales_ ? work : input};
                      void* const destinations[] = {last ? output : work, work};
                      kernels::Reduce(last ? finish_ : combine_, sources, 2, destinations,
                                      last && goes_round_ ? 2 : 1, bytes / element_);
                    });
  }

  // The prescaled inputs of [begin, end) into the stream's copy.
  void CopyOwn(int64_t begin, int64_t end) const {
    if (!prescales_) {
      stream_.Pack(begin, end, Work(begin));
      return;
    }
    stream_.ForEach(begin, end, [&](const std::byte* input, std::byte*, int64_t at, int64_t bytes) {
      const void* source = input;
      void* destination = Work(begin + at);
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
