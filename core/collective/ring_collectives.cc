// The collectives whose blocks go round a ring.

#include <algorithm>

#include "collective/kernels/kernels.h"
#include "collective/piece_stream.h"
#include "collective/ring.h"
#include "collective/transport_collectives.h"

namespace hvd {

namespace {

std::vector<int64_t> Ends(const std::vector<PieceStream>& parts) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const PieceStream& part : parts) ends.push_back(end += part.bytes());
  return ends;
}

// One piece's output is the parts end to end, so they go round in it; several pieces interleave the
// parts, so frames of them go round in scratch memory.
class RingAllgather : public Ring {
 public:
  RingAllgather(const Communicator& comm, const CollectiveSpec& spec,
                std::vector<PieceStream> parts)
      : Ring(comm, spec.sequence, Ends(parts), comm.size() - 1),
        parts_(std::move(parts)),
        ends_(Ends(parts_)),
        in_place_(spec.pieces.size() == 1),
        output_(in_place_ ? spec.pieces[0].output : nullptr) {
    if (in_place_) return;
    const Status status = comm.scratch->Borrow((kRingSlots + kInFlight) * kFrameBytes, &scratch_);
    if (!status.ok()) Fail(status);
  }

 private:
  int64_t Begin(int rank) const { return ends_[rank] - parts_[rank].bytes(); }
  std::byte* Place(size_t place) const { return scratch_.data() + place * kFrameBytes; }

  std::byte* Target(size_t index, const RingFrame& frame) override {
    return in_place_ ? output_ + frame.begin : Place(index % kRingSlots);
  }

  const std::byte* Source(size_t index, const RingFrame& frame) override {
    return Target(index, frame);
  }

  const std::byte* SourceOfOwn(size_t index, const RingFrame& frame) override {
    const int64_t begin = Begin(comm().rank());
    const PieceStream& part = parts_[comm().rank()];
    part.Keep(frame.begin - begin, frame.end - begin);
    if (in_place_) return output_ + frame.begin;
    std::byte* to = Place(kRingSlots + index % kInFlight);
    part.Pack(frame.begin - begin, frame.end - begin, to);
    return to;
  }

  void Consume(size_t index, const RingFrame& frame) override {
    if (in_place_) return;
    const int from = RingBlock(comm().rank(), frame.step, comm().size());
    parts_[from].Unpack(frame.begin - Begin(from), frame.end - Begin(from), Target(index, frame));
  }

  const std::vector<PieceStream> parts_;  // by rank
  const std::vector<int64_t> ends_;       // where each part ends in the stream that goes round
  const bool in_place_;
  std::byte* const output_;
  ScratchPool::Lease scratch_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllgather(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  return std::make_unique<RingAllgather>(comm, spec, GatherParts(spec, comm.rank(), comm.size()));
}

namespace {

// Whether a block stays with the rank that finishes it or is then handed round to everybody.
enum class Finished { kStays, kGoesRound };

// The ring with arithmetic. The blocks [ends[b-1], ends[b]) of `stream` go round, and every rank
// adds its own input to what arrives, straight from the tensors. Position r finishes block r + 1
// (modulo the size): this last hop also applies divisor and postscale, and writes the outputs.
// Floats of 16 and 8 bits are rounded once per hop.
//
// An output may be the very memory of its input.
class RingReduce : public Ring {
 public:
  RingReduce(const Communicator& comm, const CollectiveSpec& spec, PieceStream stream,
             const std::vector<int64_t>& ends, Finished finished)
      : Ring(comm, spec.sequence, ends,
             (comm.size() - 1) * (finished == Finished::kGoesRound ? 2 : 1)),
        stream_(std::move(stream)),
        element_(static_cast<int64_t>(SizeOf(spec.reduction.dtype))),
        last_combining_(comm.size() - 2),
        goes_round_(finished == Finished::kGoesRound),
        prescales_(spec.reduction.prescale != 1.0) {
    const ReduceOp op =
        spec.reduction.op == ReduceOp::kAverage ? ReduceOp::kSum : spec.reduction.op;
    scale_ = {spec.reduction.dtype, ReduceOp::kSum, spec.reduction.prescale, 1.0, 1};
    combine_ = {spec.reduction.dtype, op, 1.0, 1.0, 1};
    finish_ = spec.reduction;
    finish_.prescale = 1.0;
    const Status status = comm.scratch->Borrow(kScratchBytes, &scratch_);
    if (!status.ok()) Fail(status);
  }

 private:
  // Scratch: the slots of received frames, places for own frames on their way, and one for a scaled
  // input.
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

  // Straight from the input, also when the output is the same memory: it is written when the
  // finished block arrives, which has this frame in it.
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
      if (Finished(index, frame) == Slot(index))
        stream_.Unpack(frame.begin, frame.end, Slot(index));
      return;
    }
    std::byte* arrived = Slot(index);
    std::byte* scaled = Place(kRingSlots + kInFlight);
    if (prescales_) Scale(frame, scaled);
    const bool last = frame.step == last_combining_;
    const bool sent_from_slot = last && goes_round_ && Finished(index, frame) == arrived;
    stream_.ForEach(
        frame.begin, frame.end,
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

int64_t Bytes(const std::vector<Piece>& part) {
  int64_t bytes = 0;
  for (const Piece& piece : part) bytes += piece.bytes;
  return bytes;
}

bool IsSmall(const std::vector<Piece>& part) { return Bytes(part) <= kDirectBytes; }

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllreduce(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  const auto element = static_cast<int64_t>(SizeOf(spec.reduction.dtype));
  const std::vector<int64_t> ends = EvenBlocks(stream.bytes(), element, comm.size());
  return std::make_unique<RingReduce>(comm, spec, std::move(stream), ends, Finished::kGoesRound);
}

std::unique_ptr<StepMachine> MakeRingReducescatter(const Communicator& comm,
                                                   const CollectiveSpec& spec) {
  const int size = comm.size();
  const std::vector<std::vector<Piece>> parts = ScatterParts(spec, comm.rank(), size);
  if (std::all_of(parts.begin(), parts.end(), IsSmall)) return MakeDirectReducescatter(comm, spec);
  // Block b is finished on position b - 1, so that one's part it is.
  std::vector<Piece> stream;
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (int block = 0; block < size; ++block) {
    const std::vector<Piece>& part = parts[static_cast<size_t>((block + size - 1) % size)];
    stream.insert(stream.end(), part.begin(), part.end());
    ends.push_back(end += Bytes(part));
  }
  return std::make_unique<RingReduce>(comm, spec, PieceStream(stream), ends, Finished::kStays);
}

}  // namespace hvd
