#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

using Micros = int64_t;  // any monotonic clock

struct SequencerOptions {
  std::vector<int> members;          // global ranks, for messages
  int64_t batch_bytes = 8 << 20;     // a batch closes when this much is ready
  Micros silence = 300;              // ... or when nothing became ready for so long
  Micros urgent_silence = 30;        // ... when some member is blocked on it
                                     // ... at once when every member is blocked on something in it
  bool cache = true;
};

// A tensor that some members have announced and others have not.
struct Unready {
  std::string name;
  OpKind kind;
  Micros since;
  std::vector<int> ready;   // global ranks
  std::vector<int> absent;
};

// The one place of a process set that orders, checks and batches. Pure: announcements and the time go in,
// numbered responses come out; no socket, thread or clock inside, so thousands of members can be simulated.
class Sequencer {
 public:
  explicit Sequencer(SequencerOptions options);

  // `member` is a position in the set. An error concerns that member's bytes (unknown id, ordinal out of order):
  // the link is corrupt or the peer malicious.
  Status Announce(int member, AnnounceMessage message, Micros now);

  // The next response, if a batch is closed by `now`. Call until it returns nothing.
  std::optional<Response> Next(Micros now);

  // When Next may have something though nothing more is announced; -1 = never.
  Micros Deadline() const;

  std::vector<Unready> Pending() const;
};

}  // namespace hvd::negotiate
