#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rank.h"
#include "base/status.h"

namespace hvd {

// Names one message between two ranks. The generation is the transport's own and stands in every
// frame.
struct FrameTag {
  uint32_t set = 0;
  uint64_t sequence = 0;
  uint32_t chunk = 0;
  bool operator==(const FrameTag& o) const {
    return set == o.set && sequence == o.sequence && chunk == o.chunk;
  }
};

// The fate of one posted send or receive. Owned by whoever posted it; it must outlive the transfer.
struct Transfer {
  bool done = false;
  size_t bytes = 0;  // received: the length that the peer sent, at most the posted length
};

// Moves bytes between two ranks. Not thread safe: used by whoever holds the progress lock.
//
// A frame that arrives before its receive is posted stays in the socket, and what follows it waits
// (flow control for free), unless another set waits for something behind it. So all ranks must
// start the operations they share in one order per set, and control and data need a transport each.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual GlobalRank rank() const = 0;
  virtual int size() const = 0;  // of the job

  // Posts; never waits. Buffers stay untouched until `transfer->done`. At most kMaxFrame bytes.
  virtual void Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
                    Transfer* transfer) = 0;
  virtual void Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
                    Transfer* transfer) = 0;

  // The set is no more: its posted receives are dropped, and its frames that still arrive are
  // discarded. None of its sends may be under way. Called for every set that goes, this rank's or
  // not, but for those that their members alone know of.
  virtual void Forget(uint32_t set) = 0;

  // Moves what can be moved now. *moved says whether anything did. An error names the peer whose
  // link is lost or corrupt (`lost_peer`); the transport is then dead.
  virtual Status Progress(bool* moved) = 0;
  virtual GlobalRank lost_peer() const = 0;  // nobody while healthy
  virtual bool lost_to_corruption() const { return false; }

  // The next peer whose stream has ended between two frames since the last call; nobody if there is
  // none. Only of a transport that was told that peers may leave (control): what is posted with it
  // stays posted, and whether that is a failure is for others to say. Otherwise a missing peer is
  // an error as soon as something is expected of it.
  virtual GlobalRank TakeEnded() = 0;

  // Readable when Progress may have something to do; -1 when nothing that arrives would be of use,
  // or when the Waker is rung instead. Asked again before each sleep.
  virtual int poll_fd() const = 0;

  // Forgets everything posted and closes every socket. No posted buffer is touched afterwards. What
  // the sockets have taken gets up to `linger_us` to arrive. Needs no memory.
  virtual void Close(int64_t linger_us) = 0;
};

constexpr size_t kMaxFrame = 16 << 20;

}  // namespace hvd
