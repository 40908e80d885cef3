#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/operation/handle.h"
#include "runtime/peer/completion.h"
#include "runtime/peer/peer.h"
#include "transport/transport.h"

namespace hvd::peer {

// The messages from this rank to one other, in the order of their submission. The engine's own
// notes pass those that wait.
class Sends {
 public:
  Sends(Peer* peer, Completion* completion) : peer_(peer), completion_(completion) {}

  void Add(HandlePtr handle) {
    const bool note = IsNote(handle->entry.peer->tag);
    (note ? notes_ : waiting_).push_back(std::move(handle));
  }

  // Announces what may be, and completes what has left this rank.
  void Advance(bool* moved);

  // The peer's answer to an offer.
  Status HearAnswer(const Frame& frame);

  void Clear() noexcept;

 private:
  struct Outgoing {
    HandlePtr handle;
    uint64_t number;
    Transfer transfer;
  };

  void Announce(const HandlePtr& handle);
  void SendPayload(std::unique_ptr<Outgoing> outgoing);

  Peer* const peer_;
  Completion* const completion_;
  std::deque<HandlePtr> notes_;
  std::deque<HandlePtr> waiting_;
  std::unordered_map<uint64_t, std::unique_ptr<Outgoing>> offered_;  // by number
  std::vector<std::unique_ptr<Outgoing>> sending_;
};

}  // namespace hvd::peer
