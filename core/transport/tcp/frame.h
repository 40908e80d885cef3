#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/tcp/guard.h"
#include "transport/transport.h"

namespace hvd::tcp {

// A frame: a header of fixed size with its seal, then the payload with its own seal (none when the payload
// is empty). The header is sealed apart, so that no length and no tag is believed before it was checked.
struct FrameHeader {
  uint32_t generation = 0;
  FrameTag tag;
  uint32_t length = 0;  // of the payload
};

constexpr size_t kHeaderBytes = 32;
constexpr size_t kPrefixBytes = kHeaderBytes + kSealBytes;

using Prefix = std::array<std::byte, kPrefixBytes>;

Prefix Encode(const FrameHeader& header, Guard* guard);

// Checks seal, version, generation and length before anything is used.
Status Decode(const std::byte* prefix, uint32_t generation, Guard* guard, FrameHeader* out);

}  // namespace hvd::tcp
