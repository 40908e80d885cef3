#include "collective/ring.h"

#include <algorithm>

#include "base/failpoint.h"
#include "collective/patterns.h"

namespace hvd {

namespace {

void Cut(const std::vector<int64_t>& ends, int block, int step, std::vector<RingFrame>* frames) {
  int64_t begin = block == 0 ? 0 : ends[static_cast<size_t>(block) - 1];
  const int64_t end = ends[static_cast<size_t>(block)];
  while (begin < end) {
    const int64_t next = std::min(begin + kFrameBytes, end);
    frames->push_back({begin, next, step});
    begin = next;
  }
}

size_t Bytes(const RingFrame& frame) { return static_cast<size_t>(frame.end - frame.begin); }

}  // namespace

Ring::Ring(const Group& group, uint64_t sequence, const std::vector<int64_t>& ends, int steps)
    : group_(group), sequence_(sequence) {
  const int size = group_.size();
  Cut(ends, group_.rank, -1, &sends_);
  own_ = sends_.size();
  for (int step = 0; step < steps; ++step) {
    Cut(ends, RingBlock(group_.rank, step, size), step, &receives_);
    if (step + 1 < steps) Cut(ends, RingBlock(group_.rank, step, size), step, &sends_);
  }
}

Step Ring::Advance() {
  if (!status_.ok()) return Step::kFailed;
  const bool posted = PostReceives();
  if (consumed_ < receive_posted_ && receiving_[consumed_ % kInFlight].done) return ConsumeNext();
  if (PostSend() || posted) return Step::kProgressed;
  const bool done = consumed_ == receives_.size() && send_done_ == sends_.size();
  return done ? Step::kDone : Step::kBlocked;
}

bool Ring::PostReceives() {
  bool posted = false;
  for (; receive_posted_ < std::min(consumed_ + kInFlight, receives_.size()); ++receive_posted_) {
    const RingFrame& frame = receives_[receive_posted_];
    Transfer& transfer = receiving_[receive_posted_ % kInFlight] = {};
    group_.Recv(group_.rank - 1, sequence_, static_cast<uint32_t>(receive_posted_),
                Target(receive_posted_, frame), Bytes(frame), &transfer);
    posted = true;
  }
  return posted;
}

bool Ring::PostSend() {
  while (send_done_ < sent_ && sending_[send_done_ % kInFlight].done) ++send_done_;
  if (sent_ == sends_.size() || sent_ - send_done_ == kInFlight) return false;
  const bool own = sent_ < own_;
  if (!own && sent_ - own_ >= consumed_) return false;
  Transfer& transfer = sending_[sent_ % kInFlight] = {};
  const RingFrame& frame = sends_[sent_];
  group_.Send(group_.rank + 1, sequence_, static_cast<uint32_t>(sent_), Source(frame, own), Bytes(frame),
              &transfer);
  ++sent_;
  return true;
}

Step Ring::ConsumeNext() {
  const RingFrame& frame = receives_[consumed_];
  status_ = group_.Check(receiving_[consumed_ % kInFlight], Bytes(frame), group_.rank - 1);
  if (!status_.ok()) return Step::kFailed;
  failpoint::Hit("chunk");
  Consume(consumed_++, frame);
  return Step::kProgressed;
}

}  // namespace hvd
