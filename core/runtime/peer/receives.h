#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/operation/handle.h"
#include "runtime/peer/completion.h"
#include "runtime/peer/matching.h"
#include "runtime/peer/peer.h"
#include "transport/id_ranges.h"
#include "transport/transport.h"

namespace hvd::peer {

// The messages to this rank, from all others and from itself.
class Receives {
 public:
  Receives(GlobalRank rank, Completion* completion) : rank_(rank), completion_(completion) {}

  void Add(const HandlePtr& handle);

  // A frame that announces a message; `inlined` is its payload if it is whole.
  Status Hear(Peer* peer, const Frame& frame, const std::byte* inlined);

  // A message from this rank to itself.
  void SendToSelf(const HandlePtr& handle);

  // Completes what has arrived.
  void Advance(bool* moved);

  // The process set is no more.
  void Forget(uint32_t set);

  // Payloads are under way to this rank.
  bool arriving() const { return !arriving_.empty() || !copying_.empty(); }

  void Clear() noexcept;

 private:
  struct Message {
    Peer* peer = nullptr;  // null: this rank
    Frame frame;
    std::vector<std::byte> kept;  // the payload, where it came before its receive
    HandlePtr send;               // of this rank to itself, where the payload lies with it
    HandlePtr receive;            // once it has met one
    Transfer transfer;            // of a payload that is under way
  };
  using MessagePtr = std::shared_ptr<Message>;
  // A payload of this rank for itself, which is copied a step at a time.
  struct Copy {
    Message message;
    size_t done = 0;
  };

  static Envelope EnvelopeOf(const Handle& receive);
  Envelope EnvelopeOf(const Message& message) const;
  void Keep(MessagePtr message, const std::byte* inlined);
  void Meet(const MessagePtr& message, const HandlePtr& receive, const std::byte* inlined);
  static void Answer(const Message& message, FrameKind kind);
  static void Drop(const Message& message);
  void MeetOwn(Message* message, const HandlePtr& receive);
  void ReceivePayload(const MessagePtr& message, std::byte* memory);
  void Finish(const Message& message, const std::byte* payload);
  Status CheckFits(const Handle& receive, GlobalRank source, uint64_t bytes) const;
  void CopyStep(bool* moved);

  const GlobalRank rank_;
  Completion* const completion_;
  Matching<HandlePtr, MessagePtr> matching_;
  std::vector<MessagePtr> arriving_;
  std::deque<Copy> copying_;
  size_t kept_for_self_ = 0;  // bytes
  IdRanges forgotten_;        // process sets
};

}  // namespace hvd::peer
