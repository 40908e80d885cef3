#pragma once

#include <deque>
#include <optional>

#include "transport/inbox.h"
#include "transport/tcp/frame.h"

struct msghdr;

namespace hvd::tcp {

// The sending half of a connection: frames leave in the order of posting.
class FrameWriter {
 public:
  explicit FrameWriter(uint32_t generation) : generation_(generation) {}

  // Before the first Progress: what is posted waits for it.
  void Open(const Guard& guard) { guard_.emplace(guard); }

  void Post(const PostedSend& send) { queue_.push_back(send); }
  bool idle() const { return queue_.empty(); }
  bool blocked() const { return blocked_; }  // the socket took no more
  bool movable() const { return !queue_.empty() && !blocked_; }
  void SetWritable() { blocked_ = false; }

  // Drops what is posted, as done: nobody will read it.
  void Discard();

  // Sends at most about `budget` bytes without waiting.
  Status Progress(int socket, size_t budget, bool* moved);

 private:
  struct Rest;
  void Begin();
  Rest Gather();
  void Advance(size_t sent);

  const uint32_t generation_;
  std::optional<Guard> guard_;  // none: not open
  std::deque<PostedSend> queue_;
  bool blocked_ = false;

  // The frame at the front of the queue.
  bool begun_ = false;
  size_t sent_ = 0;     // of prefix, payload and seal together
  size_t guarded_ = 0;  // of the payload
  Prefix prefix_;
  Trailer trailer_;
};

}  // namespace hvd::tcp
