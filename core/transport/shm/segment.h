#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/descriptor.h"
#include "transport/doorbell.h"
#include "transport/mapping.h"

namespace hvd::shm {

// Whose segment it is. The nonce is random and travels over the socket as well as in the segment's own
// header: only who reads both from the same memory shares a host with the owner.
struct Identity {
  uint64_t generation = 0;
  uint64_t bytes = 0;  // given to the user
  uint32_t set = 0;
  uint32_t rank = 0;  // global
  uint32_t id = 0;
  uint32_t unused = 0;  // no padding: the struct is sent as it lies
  std::array<uint8_t, 16> nonce{};
};

// One memfd, mapped: a page of our own, then the user's bytes. A memfd has no name, so nothing remains of
// it when the last process that maps it is gone, however it went.
class Segment {
 public:
  // Makes a zeroed segment whose memory is reserved, draws its nonce, and seals its size.
  static Status Create(Identity* identity, Segment* out, Descriptor* memfd);

  // Maps a peer's segment after checking that it is what `identity` says and cannot shrink under us.
  static Status Attach(const Identity& identity, const Descriptor& memfd, Segment* out);

  std::byte* data() const { return mapping_.data() + kPageBytes; }
  SleepWord* sleep_word() const;

 private:
  struct Header;
  Header* header() const;

  Mapping mapping_;
};

}  // namespace hvd::shm
