#include "collective/ring.h"

#include <algorithm>

#include "settings/failpoint.h"

namespace hvd {

namespace {

std::vector<RingFrame> Cut(int64_t begin, int64_t end) {
  std::vector<RingFrame> frames;
  for (; begin < end; begin += kFrameBytes)
    frames.push_back({begin, std::min(begin + kFrameBytes, end), 0});
  return frames;
}

size_t Bytes(const RingFrame& frame) { return static_cast<size_t>(frame.end - frame.begin); }

}  // namespace

// Nobody waits for a slot for ever. Every link carries frames in the order of (round, step, place
// in the round). Take the rank whose next frame to send comes first in that order. What it sends on
// has come over the link before in an earlier place, so its predecessor has sent it, and everything
// that this rank has on hold would come later: so it has a free slot, receives the frame and posts
// it. Its successor's next send comes no earlier, so what that one holds are frames received before
// this one and to be sent on after it: those of one block of one round at most, which is fewer than
// kRingSlots. So it reads the frame.
Ring::Ring(const Communicator& comm, uint64_t sequence, const std::vector<int64_t>& ends, int steps)
    : comm_(comm), sequence_(sequence) {
  static_assert(kRingSlots > kRoundFrames);
  std::vector<std::vector<RingFrame>> blocks;
  size_t longest = 0;
  for (size_t block = 0; block < ends.size(); ++block) {
    blocks.push_back(Cut(block == 0 ? 0 : ends[block - 1], ends[block]));
    longest = std::max(longest, blocks.back().size());
  }
  for (size_t first = 0; first < longest; first += kRoundFrames) AddRound(blocks, first, steps);
}

void Ring::AddRound(const std::vector<std::vector<RingFrame>>& blocks, size_t first, int steps) {
  const auto frames_of = [&](int block, auto add) {
    const std::vector<RingFrame>& frames = blocks[static_cast<size_t>(block)];
    for (size_t i = first; i < std::min(first + kRoundFrames, frames.size()); ++i) add(frames[i]);
  };
  frames_of(comm_.rank(), [&](RingFrame frame) {
    frame.step = -1;
    sends_.push_back({frame, kNone});
  });
  for (int step = 0; step < steps; ++step) {
    const bool goes_on = step + 1 < steps;
    frames_of(RingBlock(comm_.rank(), step, comm_.size()), [&](RingFrame frame) {
      frame.step = step;
      if (goes_on) sends_.push_back({frame, receives_.size()});
      receives_.push_back({frame, goes_on ? sends_.size() - 1 : kNone});
    });
  }
}

// As much as one step may of what has arrived, so that it is sent on together: the fewer calls of
// the system, the less it takes (transport/tcp/writer).
Step Ring::Advance() {
  constexpr size_t kFrames = kStepBytes / kFrameBytes;
  if (!status_.ok()) return Step::kFailed;
  bool moved = PostReceives();
  for (size_t frame = 0; frame < kFrames && HasArrived(); ++frame) {
    if (!ConsumeNext()) return Step::kFailed;
    moved = true;
  }
  while (PostSend()) moved = true;
  if (moved) return Step::kProgressed;
  const bool done = consumed_ == receives_.size() && send_done_ == sends_.size();
  return done ? Step::kDone : Step::kBlocked;
}

bool Ring::HasArrived() const {
  return consumed_ < receive_posted_ && receiving_[consumed_ % kInFlight].done;
}

bool Ring::HasSlot(size_t receive) const {
  if (receive < kRingSlots) return true;
  const size_t before = receive - kRingSlots;  // that had the slot
  const size_t sent_as = receives_[before].sent_as;
  return before < consumed_ && (sent_as == kNone || sent_as < send_done_);
}

bool Ring::PostReceives() {
  bool posted = false;
  while (receive_posted_ < std::min(consumed_ + kInFlight, receives_.size()) &&
         HasSlot(receive_posted_)) {
    const RingFrame& frame = receives_[receive_posted_].frame;
    Transfer& transfer = receiving_[receive_posted_ % kInFlight] = {};
    comm_.Recv(comm_.rank() - 1, sequence_, static_cast<uint32_t>(receive_posted_),
               Target(receive_posted_, frame), Bytes(frame), &transfer);
    ++receive_posted_;
    posted = true;
  }
  return posted;
}

bool Ring::PostSend() {
  while (send_done_ < sent_ && sending_[send_done_ % kInFlight].done) ++send_done_;
  if (sent_ == sends_.size() || sent_ - send_done_ == kInFlight) return false;
  const auto& [frame, source] = sends_[sent_];
  const bool own = source == kNone;
  if (!own && source >= consumed_) return false;
  Transfer& transfer = sending_[sent_ % kInFlight] = {};
  comm_.Send(comm_.rank() + 1, sequence_, static_cast<uint32_t>(sent_),
             own ? SourceOfOwn(sent_, frame) : Source(source, frame), Bytes(frame), &transfer);
  ++sent_;
  return true;
}

bool Ring::ConsumeNext() {
  const RingFrame& frame = receives_[consumed_].frame;
  status_ = comm_.Check(receiving_[consumed_ % kInFlight], Bytes(frame), comm_.rank() - 1);
  if (!status_.ok()) return false;
  failpoint::Hit("chunk");
  Consume(consumed_, frame);
  ++consumed_;
  return true;
}

}  // namespace hvd
