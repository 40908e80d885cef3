#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/peer/frame.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd::peer {

// Carries frames and payloads between this rank and some others, over one medium. Frames to a rank
// arrive in the order of sending; payloads go their own way beside them. Never waits. Belongs to
// the holder of the progress lock.
class Channel {
 public:
  virtual ~Channel() = default;

  // Up to so many bytes a payload may lie in its frame, or follow it unasked.
  virtual size_t inline_bytes() const = 0;
  virtual size_t unasked_bytes() const = 0;

  // `inlined`: frame.inlined bytes, which are copied.
  virtual void Send(GlobalRank peer, const Frame& frame, const std::byte* inlined) = 0;

  // The payload of a message that was announced, and where it goes on its receiver, who says so
  // before it asks for it. Memory and `transfer` stay until that is done.
  virtual void SendPayload(GlobalRank peer, uint64_t number, const std::byte* data, size_t bytes,
                           Transfer* transfer) = 0;
  virtual void ReceivePayload(GlobalRank peer, uint64_t number, std::byte* data, size_t bytes,
                              Transfer* transfer) = 0;

  // The next frame that has come from `peer`; false: none yet. *inlined lies there until the next
  // call for this peer.
  virtual bool Take(GlobalRank peer, Frame* frame, const std::byte** inlined, bool* moved) = 0;

  // Moves what can be moved of what is to be sent.
  virtual void Progress(bool* moved) = 0;
  virtual bool idle() const = 0;  // nothing is left to be sent

  // Why nothing can be done any more: what a peer has sent is nothing that it can have meant to.
  virtual const Status& broken() const = 0;

  // See Window::Arm.
  virtual void Arm(bool /*sleeping*/) {}
};

// The number of their process set, which is none: it names what they share.
constexpr uint32_t kChannelSet = 0xFFFFFFFF;

// Over links: frames by `control`, payloads by `data`.
std::unique_ptr<Channel> MakeTransportChannel(Transport* control, Transport* data);

// Through shared memory: a ring of bytes for each ordered pair of the window's members, whose pages
// are there when they are first used. A member's part takes so many bytes, of which the first ones
// are used from the beginning.
struct WindowNeeds {
  size_t bytes;
  size_t at_once;
};
WindowNeeds ChannelNeeds(int members);
Status MakeWindowChannel(std::unique_ptr<Window> window, Members members,
                         std::unique_ptr<Channel>* channel);

}  // namespace hvd::peer
