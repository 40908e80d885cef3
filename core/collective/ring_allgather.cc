#include "collective/ring_allgather.h"

#include "collective/patterns.h"
#include "collective/piece_stream.h"
#include "collective/ring.h"

namespace hvd {

namespace {

std::vector<int64_t> Ends(const std::vector<PieceStream>& parts) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const PieceStream& part : parts) ends.push_back(end += part.bytes());
  return ends;
}

// One piece's output is the parts end to end, so they go round in it; several pieces interleave the parts,
// so frames of them go round in scratch memory.
class RingAllgather : public Ring {
 public:
  RingAllgather(const Group& group, const CollectiveSpec& spec, std::vector<PieceStream> parts)
      : Ring(group, spec.sequence, Ends(parts), group.size() - 1),
        parts_(std::move(parts)),
        ends_(Ends(parts_)),
        in_place_(spec.pieces.size() == 1),
        output_(in_place_ ? spec.pieces[0].output : nullptr) {
    if (in_place_) return;
    const Status status = group.scratch->Borrow((kRingSlots + kInFlight) * kFrameBytes, &scratch_);
    if (!status.ok()) Fail(status);
  }

 private:
  int64_t Begin(int rank) const { return ends_[rank] - parts_[rank].bytes(); }
  std::byte* Place(size_t place) const { return scratch_.data() + place * kFrameBytes; }

  std::byte* Target(size_t index, const RingFrame& frame) override {
    return in_place_ ? output_ + frame.begin : Place(index % kRingSlots);
  }

  const std::byte* Source(size_t index, const RingFrame& frame) override { return Target(index, frame); }

  const std::byte* SourceOfOwn(size_t index, const RingFrame& frame) override {
    const int64_t begin = Begin(group().rank());
    const PieceStream& part = parts_[group().rank()];
    part.Keep(frame.begin - begin, frame.end - begin);
    if (in_place_) return output_ + frame.begin;
    std::byte* to = Place(kRingSlots + index % kInFlight);
    part.Pack(frame.begin - begin, frame.end - begin, to);
    return to;
  }

  void Consume(size_t index, const RingFrame& frame) override {
    if (in_place_) return;
    const int from = RingBlock(group().rank(), frame.step, group().size());
    parts_[from].Unpack(frame.begin - Begin(from), frame.end - Begin(from), Target(index, frame));
  }

  const std::vector<PieceStream> parts_;  // by rank
  const std::vector<int64_t> ends_;       // where each part ends in the stream that goes round
  const bool in_place_;
  std::byte* const output_;
  ScratchPool::Lease scratch_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllgather(const Group& group, const CollectiveSpec& spec) {
  return std::make_unique<RingAllgather>(group, spec, GatherParts(spec, group.rank(), group.size()));
}

}  // namespace hvd
