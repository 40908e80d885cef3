#pragma once

#include <array>

#include "collective/communicator.h"

// The messages of an operation that go one way between two ranks. They are numbered in their order,
// the same on both, so the number is the tag. At most kInFlight are under way.
namespace hvd {

class MessageQueue {
 public:
  MessageQueue(const Communicator* comm, int peer, uint64_t sequence)
      : comm_(comm), peer_(peer), sequence_(sequence) {}

  size_t posted() const { return posted_; }

 protected:
  Transfer* Next() {
    Transfer& transfer = transfers_[posted_++ % kInFlight] = {};
    return &transfer;
  }
  bool OldestHasEnded() const { return done_ < posted_ && transfers_[done_ % kInFlight].done; }

  const Communicator* comm_;
  int peer_;  // position
  uint64_t sequence_;
  size_t posted_ = 0;
  size_t done_ = 0;
  std::array<Transfer, kInFlight> transfers_;
};

class SendQueue : public MessageQueue {
 public:
  using MessageQueue::MessageQueue;

  size_t sent() {
    while (OldestHasEnded()) ++done_;
    return done_;
  }
  bool MayPost() { return posted_ - sent() < kInFlight; }
  // The data stay untouched until it is sent.
  void Post(const void* data, size_t bytes) {
    const auto number = static_cast<uint32_t>(posted_);
    comm_->Send(peer_, sequence_, number, data, bytes, Next());
  }
};

class ReceiveQueue : public MessageQueue {
 public:
  using MessageQueue::MessageQueue;

  size_t taken() const { return done_; }
  bool MayPost() const { return posted_ - done_ < kInFlight; }
  void Post(void* to, size_t bytes) {
    const auto number = static_cast<uint32_t>(posted_);
    agreed_[posted_ % kInFlight] = bytes;
    comm_->Recv(peer_, sequence_, number, to, bytes, Next());
  }
  bool HasArrived() const { return OldestHasEnded(); }
  // Takes what has arrived; an error if it is not as long as agreed.
  Status Take() {
    const size_t slot = done_++ % kInFlight;
    return comm_->Check(transfers_[slot], agreed_[slot], peer_);
  }

 private:
  std::array<size_t, kInFlight> agreed_{};
};

}  // namespace hvd
