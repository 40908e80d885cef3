#include "collective/ring_allreduce.h"

#include <algorithm>

#include "collective/direct_allreduce.h"
#include "collective/kernels.h"
#include "collective/piece_stream.h"
#include "collective/ring.h"

namespace hvd {

namespace {

int64_t ElementOf(const CollectiveSpec& spec) { return static_cast<int64_t>(SizeOf(spec.reduction.dtype)); }

// Where each rank's block ends: whole elements, as even as possible.
std::vector<int64_t> EvenBlocks(int64_t bytes, int64_t element, int size) {
  const int64_t elements = bytes / element;
  std::vector<int64_t> ends;
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t end = elements / size * (rank + 1) + std::min(rank + 1, elements % size);
    ends.push_back(end * element);
  }
  return ends;
}

class RingAllreduce : public Ring {
 public:
  RingAllreduce(const Group& group, const CollectiveSpec& spec, PieceStream stream)
      : Ring(group, spec.sequence, EvenBlocks(stream.bytes(), ElementOf(spec), group.size()),
             2 * (group.size() - 1)),
        stream_(std::move(stream)),
        element_(ElementOf(spec)),
        last_combining_(group.size() - 2),
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
                      void* const destinations[] = {work, output};
                      kernels::Reduce(last ? finish_ : combine_, sources, 2, destinations, last ? 2 : 1,
                                      bytes / element_);
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
  const bool prescales_;
  Reduction scale_;
  Reduction combine_;
  Reduction finish_;
  ScratchPool::Lease scratch_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllreduce(const Group& group, const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  if (stream.bytes() <= kDirectBytes) return MakeDirectAllreduce(group, spec);
  return std::make_unique<RingAllreduce>(group, spec, std::move(stream));
}

}  // namespace hvd
