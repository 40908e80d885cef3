#include "collective/frame_flow.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// A rank that sends little can post all of it at once; then the only frame to each peer is its
// last.
constexpr int64_t kBriefBytes = kFrameBytes;
static_assert(kBriefBytes * 2 <= static_cast<int64_t>(kStepBytes), "packing it is one step");

bool IsBrief(const AlltoallParts& parts, int sender) {
  return parts.senders[static_cast<size_t>(sender)].stream <= kBriefBytes;
}

// The last frame is sent even where it is empty.
Frames CutForPeer(const PieceStream& part, bool brief) {
  if (brief) return {{&part, 0, part.bytes(), 0}};
  Frames frames = Cut(part, kFrameBytes, 0);
  frames.push_back({&part, part.bytes(), part.bytes(), 0});
  return frames;
}

class PairwiseAlltoall : public StepMachine {
 public:
  PairwiseAlltoall(const Communicator& comm, const CollectiveSpec& spec)
      : parts_(spec, comm.rank(), comm.size()), own_(parts_.own), exchange_(comm, spec.sequence) {
    for (int step = 1; step < comm.size(); ++step) {
      const int to = (comm.rank() + step) % comm.size();
      const int from = (comm.rank() - step + comm.size()) % comm.size();
      exchange_.Send(to, CutForPeer(parts_.to[to], IsBrief(parts_, comm.rank())));
      exchange_.Receive(from, CutForPeer(parts_.from[from], IsBrief(parts_, from)));
    }
    status_ = exchange_.BorrowRoom();
  }

 private:
  Step TakeStep() override {
    const bool posted = exchange_.PostReceives();
    if (exchange_.Take(&status_) != nullptr) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    if (PostSends() || own_.Next()) return Step::kProgressed;
    if (exchange_.done()) return Step::kDone;
    return posted ? Step::kProgressed : Step::kBlocked;
  }

  // Posts one frame, or the last frame to everybody.
  bool PostSends() {
    bool only_last = true;
    bool all_may = true;
    for (FrameSender& sender : exchange_.senders()) {
      const bool may_post = sender.Next() != nullptr;
      all_may &= may_post;
      if (sender.unposted() <= 1) continue;
      only_last = false;
      if (!may_post) continue;
      sender.Post();
      return true;
    }
    if (!only_last || !all_may) return false;
    for (FrameSender& sender : exchange_.senders()) sender.Post();
    return true;
  }

  const AlltoallParts parts_;
  StraightCopy own_;
  FrameExchange exchange_;
};

}  // namespace

std::unique_ptr<StepMachine> MakePairwiseAlltoall(const Communicator& comm,
                                                  const CollectiveSpec& spec) {
  return std::make_unique<PairwiseAlltoall>(comm, spec);
}

}  // namespace hvd
