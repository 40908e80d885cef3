#include <algorithm>
#include <array>

#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// One direction of a link: a part cut in frames.
struct Flow {
  int peer = 0;  // position
  PieceStream stream;
  size_t frames = 0;
  std::byte* bounce = nullptr;  // kInFlight frames that span several pieces; null when none does
  size_t posted = 0;
  size_t done = 0;  // sent, or received and in place
  std::array<Transfer, kInFlight> transfers;

  int64_t Begin(size_t frame) const {
    return std::min(static_cast<int64_t>(frame) * kFrameBytes, stream.bytes());
  }
  int64_t End(size_t frame) const { return std::min(Begin(frame) + kFrameBytes, stream.bytes()); }
  size_t Bytes(size_t frame) const { return static_cast<size_t>(End(frame) - Begin(frame)); }
  std::byte* Bounce(size_t frame) const { return bounce + frame % kInFlight * kFrameBytes; }
  size_t BounceBytes() const {
    return stream.Single() != nullptr
               ? 0
               : static_cast<size_t>(std::min<int64_t>(stream.bytes(), kBounceBytes));
  }
  Transfer& At(size_t frame) { return transfers[frame % kInFlight]; }
  bool MayPost() const { return posted < frames && posted < done + kInFlight; }

  static constexpr int64_t kBounceBytes = static_cast<int64_t>(kInFlight) * kFrameBytes;
};

// A rank that sends little can post all of it at once; then the only frame to each peer is its
// last.
constexpr int64_t kBriefBytes = kFrameBytes;
static_assert(kBriefBytes * 2 <= static_cast<int64_t>(kStepBytes), "packing it is one step");

bool IsBrief(const AlltoallParts& parts, int sender) {
  return parts.senders[static_cast<size_t>(sender)].stream <= kBriefBytes;
}

size_t FramesOf(int64_t bytes, bool brief) {
  return brief ? 1 : static_cast<size_t>((bytes + kFrameBytes - 1) / kFrameBytes) + 1;
}

class PairwiseAlltoall : public StepMachine {
 public:
  PairwiseAlltoall(const Communicator& comm, uint64_t sequence, const AlltoallParts& parts)
      : comm_(comm), sequence_(sequence), own_(PieceStream(parts.own)) {
    size_t bounce = 0;
    const auto add = [&](std::vector<Flow>* flows, int peer, const std::vector<Piece>& pieces,
                         bool brief) {
      Flow flow;
      flow.peer = peer;
      flow.stream = PieceStream(pieces);
      flow.frames = FramesOf(flow.stream.bytes(), brief);
      bounce += flow.BounceBytes();
      flows->push_back(std::move(flow));
    };
    const bool brief = IsBrief(parts, comm_.rank());
    for (int step = 1; step < comm_.size(); ++step) {
      const int to = (comm_.rank() + step) % comm_.size();
      const int from = (comm_.rank() - step + comm_.size()) % comm_.size();
      add(&sends_, to, parts.to[to], brief);
      add(&receives_, from, parts.from[from], IsBrief(parts, from));
    }
    if (bounce > 0) Borrow(bounce);
  }

  Status status() const override { return status_; }

  Step Advance() override {
    if (!status_.ok()) return Step::kFailed;
    bool moved = PostReceives();
    if (TakeNext()) return status_.ok() ? Step::kProgressed : Step::kFailed;
    if (PostSends() || own_.Next()) return Step::kProgressed;
    const auto done = [](const Flow& flow) { return flow.done == flow.frames; };
    if (std::all_of(receives_.begin(), receives_.end(), done) &&
        std::all_of(sends_.begin(), sends_.end(), done)) {
      return Step::kDone;
    }
    return moved ? Step::kProgressed : Step::kBlocked;
  }

 private:
  void Borrow(size_t bytes) {
    status_ = comm_.scratch->Borrow(bytes, &scratch_);
    std::byte* at = scratch_.data();
    for (std::vector<Flow>* flows : {&sends_, &receives_}) {
      for (Flow& flow : *flows) {
        if (flow.BounceBytes() == 0 || !status_.ok()) continue;
        flow.bounce = at;
        at += flow.BounceBytes();
      }
    }
  }

  bool PostReceives() {
    bool posted = false;
    for (Flow& flow : receives_) {
      for (; flow.MayPost(); ++flow.posted) {
        const size_t frame = flow.posted;
        std::byte* target = nullptr;
        if (flow.Bytes(frame) > 0) {
          const Piece* piece = flow.stream.Single();
          target = piece != nullptr ? piece->output + flow.Begin(frame) : flow.Bounce(frame);
        }
        flow.At(frame) = {};
        comm_.Recv(flow.peer, sequence_, static_cast<uint32_t>(frame), target, flow.Bytes(frame),
                   &flow.At(frame));
        posted = true;
      }
    }
    return posted;
  }

  // Puts the next frame that has arrived in place (or fails); false when there is none.
  bool TakeNext() {
    for (Flow& flow : receives_) {
      if (flow.done == flow.posted || !flow.At(flow.done).done) continue;
      status_ = comm_.Check(flow.At(flow.done), flow.Bytes(flow.done), flow.peer);
      if (!status_.ok()) return true;
      failpoint::Hit("chunk");
      if (flow.stream.Single() == nullptr) {
        flow.stream.Unpack(flow.Begin(flow.done), flow.End(flow.done), flow.Bounce(flow.done));
      }
      ++flow.done;
      return true;
    }
    return false;
  }

  // Posts one frame, or the last frame to everybody.
  bool PostSends() {
    bool only_last = true;
    for (Flow& flow : sends_) {
      while (flow.done < flow.posted && flow.At(flow.done).done) ++flow.done;
      if (flow.posted + 1 >= flow.frames) continue;
      only_last = false;
      if (!flow.MayPost()) continue;
      PostSend(&flow);
      return true;
    }
    if (!only_last || last_posted_) return false;
    const auto may_post = [](const Flow& flow) { return flow.MayPost(); };
    if (!std::all_of(sends_.begin(), sends_.end(), may_post)) return false;
    for (Flow& flow : sends_) PostSend(&flow);
    last_posted_ = true;
    return true;
  }

  void PostSend(Flow* flow) const {
    const size_t frame = flow->posted++;
    const std::byte* source = nullptr;
    if (flow->Bytes(frame) > 0) {
      const Piece* piece = flow->stream.Single();
      source = piece != nullptr ? piece->input + flow->Begin(frame) : flow->Bounce(frame);
      if (piece == nullptr)
        flow->stream.Pack(flow->Begin(frame), flow->End(frame), flow->Bounce(frame));
    }
    flow->At(frame) = {};
    comm_.Send(flow->peer, sequence_, static_cast<uint32_t>(frame), source, flow->Bytes(frame),
               &flow->At(frame));
  }

  const Communicator comm_;
  const uint64_t sequence_;
  std::vector<Flow> sends_;     // to the ranks after this one
  std::vector<Flow> receives_;  // from the ranks before this one
  StraightCopy own_;
  ScratchPool::Lease scratch_;
  Status status_;
  bool last_posted_ = false;
};

}  // namespace

std::unique_ptr<StepMachine> MakePairwiseAlltoall(const Communicator& comm,
                                                  const CollectiveSpec& spec) {
  return std::make_unique<PairwiseAlltoall>(comm, spec.sequence,
                                            AlltoallParts(spec, comm.rank(), comm.size()));
}

}  // namespace hvd
