#pragma once

#include <array>
#include <vector>

#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// A frame's place in the stream that goes round.
struct RingFrame {
  int64_t begin = 0;
  int64_t end = 0;
  int step = 0;  // number of the block it belongs to, in the order of arrival
};

// What all ring algorithms have in common: blocks go round, cut in frames; every rank sends its own block,
// and then what it receives, in the order in which it receives it. Several frames are under way at once, so
// receiving, working and sending overlap.
//
// Frame i of a link is frame i of both ends' lists, so its number is its tag.
class Ring : public StepMachine {
 public:
  Step Advance() final;
  Status status() const final { return status_; }

 protected:
  // A ring of `steps` steps over blocks [ends[b-1], ends[b]) of a stream.
  Ring(const Group& group, uint64_t sequence, const std::vector<int64_t>& ends, int steps);

  const Group& group() const { return group_; }
  // Scratch for the whole ring could not be had: every Advance fails.
  void Fail(Status status) { status_ = std::move(status); }

  // Where a received frame is put; valid until it is consumed.
  virtual std::byte* Target(size_t index, const RingFrame& frame) = 0;
  // Works on the frame that has arrived at Target; afterwards it can be sent on.
  virtual void Consume(size_t index, const RingFrame& frame) = 0;
  // The memory to send a frame from; stays untouched until the ring is done. `own`: it is of the own block.
  virtual const std::byte* Source(const RingFrame& frame, bool own) = 0;

 private:
  bool PostReceives();
  bool PostSend();
  Step ConsumeNext();

  const Group group_;
  const uint64_t sequence_;
  std::vector<RingFrame> sends_;
  std::vector<RingFrame> receives_;
  size_t own_ = 0;  // how many of sends_ are of the own block; the others are a prefix of receives_
  size_t receive_posted_ = 0;
  size_t consumed_ = 0;
  size_t sent_ = 0;  // sends posted
  size_t send_done_ = 0;
  std::array<Transfer, kInFlight> receiving_;
  std::array<Transfer, kInFlight> sending_;
  Status status_;
};

}  // namespace hvd
