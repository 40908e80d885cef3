#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/operation/handle.h"
#include "runtime/operation/queue.h"
#include "runtime/peer/channel.h"
#include "runtime/peer/completion.h"
#include "runtime/peer/peer.h"
#include "runtime/peer/receives.h"
#include "runtime/peer/sends.h"

namespace hvd::peer {

// Over what a rank talks to the others: through shared memory to those of its host, over links to
// the rest. Null where there is nobody.
struct Channels {
  std::unique_ptr<Channel> window;
  std::unique_ptr<Channel> links;
  Members local;  // who is on the window
};

// The messages between this rank and others, of all process sets: sends and receives as they are
// submitted, until they are complete. Nobody negotiates them. A rank hears of what others send to
// it when it sends or receives itself; until then it lies where the others have put it, bounded.
// Belongs to the holder of the progress lock.
class Messages {
 public:
  // `events`: null without a timeline.
  Messages(GlobalRank rank, int size, Channels channels, Queue* queue, EventSink* events);

  // An operation with a `peer`.
  void Add(const HandlePtr& handle);

  // Ends an operation for its submitter, who does not wait any longer, unless it is complete. Its
  // memory must stay all the same: what has been promised to the peer comes and goes there.
  void Leave(const HandlePtr& handle, Status status) noexcept {
    completion_.Complete(handle, std::move(status));
  }

  // Does what can be done now. An error ends the generation.
  Status Progress(bool* moved);

  // Nothing is left to be sent of what is complete here.
  bool idle() const;

  // The process set is no more here, and nothing of it is in flight on this rank.
  void Forget(uint32_t set) {
    receives_.Forget(set);
    looks_away_ = false;  // there may be more room than the others know
  }

  void Arm(bool sleeping);

  HandleChain TakeFinished() noexcept { return completion_.TakeFinished(); }

  // Forgets everything; user memory is not touched afterwards.
  void Abandon() noexcept;

 private:
  struct Other {
    Other(GlobalRank rank, Channel* channel, Completion* completion)
        : peer(rank, channel), sends(&peer, completion) {}
    Peer peer;
    Sends sends;
  };

  void LookAway();
  Status HearFrom(Other* other, bool* moved);
  Status Hear(Other* other, const Frame& frame, const std::byte* inlined);

  const GlobalRank rank_;
  const Channels channels_;
  std::vector<Channel*> all_;  // that there are
  Completion completion_;
  std::vector<std::unique_ptr<Other>> others_;  // by rank; null: this one
  Receives receives_;
  bool looks_away_ = true;  // as it has no messages, which the others know
};

}  // namespace hvd::peer
