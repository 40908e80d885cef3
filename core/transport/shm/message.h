#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "transport/descriptor.h"
#include "transport/shm/shared_memory.h"

namespace hvd::shm {

using Deadline = int64_t;  // on the clock of NowMicros

constexpr uint32_t kMagic = 0x68766d32;   // the last byte is the version
constexpr size_t kMostDescriptors = 253;  // that one message carries (SCM_MAX_FD)

// How an exchange has gone so far.
enum class Outcome : uint32_t {
  kDone = 0,
  kCannot,  // a rank could not do its part
  kAbsent,  // a rank did not answer
};

// What ranks tell each other while they share memory, over an authenticated AF_UNIX stream socket.
struct Message {
  enum Kind : uint32_t { kWakers = 1, kSegment, kVerdict };
  uint32_t magic = kMagic;
  Kind kind = kSegment;
  Outcome outcome = Outcome::kDone;  // otherwise no descriptor comes with the message
  uint32_t failed_rank = 0;          // whose outcome it is
  Identity identity;
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 64,
              "the struct is sent as it lies");

// Waits also while too many descriptors of this user are under way (ETOOMANYREFS: the kernel allows
// as many as a process may have open).
Status Send(int socket, const Message& message, const std::vector<int>& descriptors,
            Deadline deadline);

// Reads exactly one message and the descriptors that came with it (close-on-exec). kUnavailable:
// this process may not have so many.
Status Receive(int socket, Message* message, std::vector<Descriptor>* descriptors,
               Deadline deadline);

}  // namespace hvd::shm
