#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/doorbell.h"
#include "transport/shm/message.h"
#include "transport/shm/segment.h"
#include "transport/window.h"

namespace hvd::shm {

// Window among processes: memfds and wakers passed as descriptors. Every member succeeds in sharing a
// segment, or every member gets an error.
class ShmWindow : public Window {
 public:
  // Collective and blocking. `members` are global ranks and `rank` the caller's own; `sockets` holds a
  // connected AF_UNIX stream socket to each member by position (-1 for self). The sockets stay the
  // caller's and are used again by Allocate, in the same order of windows and segments on every member. All
  // of that ends at the deadline.
  static Status Make(uint64_t generation, uint32_t set, const std::vector<int>& members, int rank,
                     const std::vector<int>& sockets, const Waker& waker, Deadline deadline,
                     std::unique_ptr<Window>* out);

  int rank() const override { return position_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Status Allocate(size_t bytes, SegmentId* id) override;
  std::byte* Span(int rank, SegmentId id) override { return segments_[id + 1][rank].data(); }
  void Post(Flag& flag, uint64_t value, int reader = kEverybody) override { bell_.Post(flag, value, reader); }
  void Arm(bool sleeping) override { bell_.Arm(sleeping); }

 private:
  // What one Share brought in, by position in the set.
  struct Shared {
    std::vector<Segment> segments;
    std::vector<Descriptor> wakers;
  };

  ShmWindow() = default;

  // Shares the next segment, and `waker` unless it is -1.
  Status Share(size_t bytes, int waker, Shared* shared);
  Status Offer(int peer, Message message, const std::vector<int>& descriptors);
  Status Accept(int peer, const Message& own, bool with_waker, Shared* shared);
  Status Agree(Message verdict, const Status& mine);
  Status Hear(int peer, const Message& own, Message* message, std::vector<Descriptor>* descriptors);
  static Status Failed(const Message& verdict);
  std::string Who(int peer) const { return "rank " + std::to_string(members_[peer]); }

  uint64_t generation_ = 0;
  uint32_t set_ = 0;
  std::vector<int> members_;
  int position_ = 0;
  std::vector<int> sockets_;
  Deadline deadline_ = 0;
  Doorbell bell_;
  // [segment][rank]. The first segment is header only: it holds the sleep words, so that they exist before
  // any flag does.
  std::vector<std::vector<Segment>> segments_;
};

}  // namespace hvd::shm
