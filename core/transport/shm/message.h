#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "transport/descriptor.h"
#include "transport/shm/segment.h"

namespace hvd::shm {

using Deadline = int64_t;  // on the clock of NowMicros

// What the members of a window tell each other while they share a segment, over an authenticated AF_UNIX
// stream socket: first the segment with its descriptors, then whether all of it could be mapped.
struct Message {
  enum Kind : uint32_t { kSegment = 1, kVerdict = 2 };
  uint32_t magic = 0x68766d31;
  Kind kind = kSegment;
  uint32_t failed = 0;       // the sender could not do its part; no descriptor comes with the message
  uint32_t failed_rank = 0;  // kVerdict with failed: who could not
  Identity identity;
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 64,
              "the struct is sent as it lies");

// Waits also while too many descriptors of this user are under way (ETOOMANYREFS: the kernel allows as many
// as a process may have open).
Status Send(int socket, const Message& message, const std::vector<int>& descriptors, Deadline deadline);

// Reads exactly one message and the descriptors that came with it (close-on-exec).
Status Receive(int socket, Message* message, std::vector<Descriptor>* descriptors, Deadline deadline);

}  // namespace hvd::shm
