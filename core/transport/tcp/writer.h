#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "transport/inbox.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/records.h"

namespace hvd::tcp {

// The sending half of a connection: frames leave in the order of posting.
class FrameWriter {
 public:
  explicit FrameWriter(uint32_t generation) : generation_(generation) {}

  // Before the first Progress: what is posted waits for it. `records`: null if the frames travel as
  // they are.
  void Open(const Guard& guard, std::unique_ptr<RecordWriter> records) {
    guard_.emplace(guard);
    records_ = std::move(records);
  }

  void Post(const PostedSend& send) { queue_.emplace_back(send); }
  bool idle() const { return queue_.empty(); }
  bool blocked() const { return blocked_; }  // the socket took no more
  bool movable() const { return !queue_.empty() && !blocked_; }
  void SetWritable() { blocked_ = false; }

  // Drops what is posted, as done: nobody will read it.
  void Discard();

  // Sends at most about `budget` bytes without waiting.
  Status Progress(int socket, size_t budget, bool* moved);

 private:
  // A frame on its way.
  struct Outgoing {
    explicit Outgoing(const PostedSend& send) : send(send) {}
    size_t bytes() const { return kPrefixBytes + send.bytes + (send.bytes > 0 ? kSealBytes : 0); }
    bool guarded_all() const { return begun && guarded == send.bytes; }

    PostedSend send;
    bool begun = false;  // it has its prefix
    size_t guarded = 0;  // of the payload; the trailer is there once all of it is
    Prefix prefix;
    Trailer trailer;
  };
  class Batch;
  Batch Gather();
  void GuardMore(Outgoing* frame, size_t most);
  void Advance(size_t sent);

  const uint32_t generation_;
  std::optional<Guard> guard_;  // none: not open
  std::unique_ptr<RecordWriter> records_;
  std::deque<Outgoing> queue_;
  size_t sent_ = 0;  // of the frame at its front: of prefix, payload and trailer together
  bool blocked_ = false;
};

}  // namespace hvd::tcp
