#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace hvd::peer {

// What two ranks say to each other about the messages between them. The first three announce a
// message, and number it.
enum class FrameKind : uint8_t {
  kWhole = 1,  // its payload lies in the frame
  kFollowed,   // its payload follows by itself
  kOffer,      // its payload follows once it is accepted
  kAccept,     // the offered message: it is to be sent now
  kDecline,    // the offered message: nobody wants its payload
  kCredit,     // nothing but the two counts that every frame has
  kPayload,    // a part of a payload, where payloads and frames share a ring
  kPassed,     // the rest of that ring is passed over
};
constexpr uint8_t kFrameKinds = 8;

constexpr bool Announces(FrameKind kind) { return kind <= FrameKind::kOffer; }

struct Frame {
  FrameKind kind = FrameKind::kCredit;
  uint32_t set = 0;
  int64_t tag = 0;
  uint64_t number = 0;   // of the message, among those from its sender to its receiver, from 1 on
  uint64_t bytes = 0;    // of the whole payload
  uint32_t inlined = 0;  // of the payload, in the frame
  // Of the messages that go the other way, since the beginning: how many receives they have met,
  // and how many bytes of those that were sent unasked are no longer kept for them. Of the engine's
  // own notes, which count for neither: how many receives these have met.
  uint64_t matched = 0;
  uint64_t freed = 0;
  uint32_t notes = 0;
};

constexpr size_t kFrameBytes = 56;
using FrameHead = std::array<std::byte, kFrameBytes>;

FrameHead Encode(const Frame& frame);
// Of bytes that a peer has written. Says what is no frame; whether its numbers are possible is for
// others to say.
Status Decode(const std::byte* head, Frame* frame);

}  // namespace hvd::peer
