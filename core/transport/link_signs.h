#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/link.h"
#include "base/rank.h"

namespace hvd {

// What the system knows of one TCP connection.
struct LinkSign {
  GlobalRank peer;
  LinkRole role = LinkRole::kData;
  bool arrived = false;       // bytes of the peer have come since the last look
  int64_t owed_us = 0;        // for how long its host has answered nothing that it has to
  int64_t round_trip_us = 0;  // smoothed
};

// The TCP connections of a rank, from when they are linked until just before they are closed. A
// connection that a firewall has forgotten, or that is dropped on its way, says nothing of itself
// for a quarter of an hour: only that the peer's host acknowledges nothing shows it. An idle one is
// probed now and then, so that it is not forgotten, and so that one that is lost is noticed.
// Thread safe.
class LinkSigns {
 public:
  explicit LinkSigns(double peer_timeout_seconds) : timeout_seconds_(peer_timeout_seconds) {}

  // A socket of another kind has nothing to say and is left alone.
  void Add(int socket, GlobalRank peer, LinkRole role);
  void Remove(int socket) noexcept;

  // For one thread only, at regular times. `held_up`: this process did not run in between, so what
  // it is owed counts from now on.
  std::vector<LinkSign> Look(int64_t now_us, bool held_up);

 private:
  struct Watched {
    int socket;
    GlobalRank peer;
    LinkRole role;
    uint64_t received = 0;       // bytes
    uint64_t acknowledged = 0;   // likewise
    uint32_t segments = 0;       // that have come, acknowledgements too
    int64_t owed_since_us = -1;  // -1: nothing is owed
  };

  const double timeout_seconds_;
  std::mutex mutex_;  // guards what follows
  std::vector<Watched> links_;
};

}  // namespace hvd
