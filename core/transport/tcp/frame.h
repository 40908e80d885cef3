#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/link.h"
#include "base/status.h"
#include "transport/transport.h"

namespace hvd::tcp {

// How the frames of a transport are protected: control frames by a keyed seal (nobody else can make
// one, repeat one or leave one out), data frames by a CRC32C (a bit that flipped is found).
enum class Integrity { kSealed, kChecksum };

using Trailer = std::array<std::byte, kSealBytes>;

// Makes the seals of everything that goes one way on one link, in order. Used by both ends alike.
class Guard {
 public:
  Guard(Integrity integrity, const Key& key) : integrity_(integrity), sealer_(key) {}

  // Adds the next bytes of the part that is being sealed. Its pieces lie one after the other in
  // memory, and stay there until Finish.
  void Add(const std::byte* data, size_t bytes);

  // The bytes added so far lie here from now on.
  void Move(const std::byte* begin) { begin_ = begin; }

  // Forgets what was added since the last Finish: it will not be sent.
  void Drop() { checksum_ = 0, bytes_ = 0; }

  // The seal of what was added since the last Finish.
  Trailer Finish();
  bool Accepts(const std::byte* received);  // whether it is that seal

 private:
  Integrity integrity_;
  Sealer sealer_;
  uint32_t checksum_ = 0;
  const std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

// A frame: a header of fixed size with its seal, then the payload with its own seal (none when the
// payload is empty). The header is sealed apart, so that no length and no tag is believed before it
// was checked.
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
