#pragma once

#include <array>
#include <vector>

#include "base/collective.h"
#include "collective/communicator.h"

namespace hvd {

// A frame's place in the stream that goes round.
struct RingFrame {
  int64_t begin = 0;
  int64_t end = 0;
  int step = 0;  // number of the block it belongs to, in the order of arrival; -1 = the own block
};

// So many frames of every block go round before the next ones do, so that what is on hold is
// bounded whatever the size of the stream.
constexpr size_t kRoundFrames = 8;
// Received frames that may wait until they have been sent on. With more than a round's frames a
// rank always has a slot for the frame that the slowest rank waits for (proof in ring.cc).
constexpr size_t kRingSlots = 2 * kRoundFrames;

// The block that position `rank` receives from its predecessor in step `step` of a ring; it sends
// in step s what it received in step s-1, and its own block first.
inline int RingBlock(int rank, int step, int size) {
  return ((rank - 1 - step) % size + size) % size;
}

// What all ring algorithms have in common: blocks go round, cut in frames; every rank sends its own
// block, and then what it receives, in the order in which it receives it. Several frames are under
// way at once, so receiving, working and sending overlap.
//
// Frame i of a link is frame i of both ends' lists, so its number is its tag.
class Ring : public StepMachine {
 public:
  Step Advance() final;
  Status status() const final { return status_; }

 protected:
  // A ring of `steps` steps over blocks [ends[b-1], ends[b]) of a stream.
  Ring(const Communicator& comm, uint64_t sequence, const std::vector<int64_t>& ends, int steps);

  const Communicator& comm() const { return comm_; }
  // Scratch for the ring could not be had: every Advance fails.
  void Fail(Status status) { status_ = std::move(status); }

  // Where received frame `index` goes. A frame takes slot `index` % kRingSlots if any: it is not
  // given again before the frame has been consumed and, where it is sent on, sent.
  virtual std::byte* Target(size_t index, const RingFrame& frame) = 0;
  // A frame lies in its Target; afterwards it can be sent on.
  virtual void Consume(size_t index, const RingFrame& frame) = 0;
  // The memory to send from: of received frame `index`, or (SourceOfOwn) of the own block, where
  // `index` numbers the sends, of which kInFlight are under way at most. Stays untouched until
  // then.
  virtual const std::byte* Source(size_t index, const RingFrame& frame) = 0;
  virtual const std::byte* SourceOfOwn(size_t index, const RingFrame& frame) = 0;

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Sending {
    RingFrame frame;
    size_t source;  // the received frame that is sent on; kNone = of the own block
  };
  struct Receiving {
    RingFrame frame;
    size_t sent_as;  // its place among the sends; kNone = it stays here
  };

  void AddRound(const std::vector<std::vector<RingFrame>>& blocks, size_t first, int steps);
  bool HasSlot(size_t receive) const;
  bool PostReceives();
  bool PostSend();
  bool HasArrived() const;
  bool ConsumeNext();

  const Communicator comm_;
  const uint64_t sequence_;
  std::vector<Sending> sends_;
  std::vector<Receiving> receives_;
  size_t receive_posted_ = 0;
  size_t consumed_ = 0;
  size_t sent_ = 0;  // sends posted
  size_t send_done_ = 0;
  std::array<Transfer, kInFlight> receiving_;
  std::array<Transfer, kInFlight> sending_;
  Status status_;
};

}  // namespace hvd
