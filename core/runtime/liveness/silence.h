#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rank.h"
#include "base/topology.h"
#include "runtime/liveness/cause.h"
#include "runtime/liveness/diagnosis.h"
#include "runtime/liveness/peer.h"
#include "runtime/liveness/stopped.h"
#include "transport/link_signs.h"

namespace hvd {

struct Patience {
  double peer_seconds = 6.0;
  double stopped_seconds = 600.0;  // for a peer that is stopped, where somebody can see that
  // For a peer that has said nothing yet: it may wait for links to others, and names whom it cannot
  // reach.
  double start_seconds = 0.0;
};

// Who has been silent for too long. Bytes on any link of a peer are a sign of its life, because
// heartbeats may have to queue behind them. A link whose peer's host acknowledges nothing, although
// the peer is heard, is lost alone.
class SilenceCheck {
 public:
  // All outlive it. `signs`: null where there are no sockets.
  SilenceCheck(const Patience& patience, const Topology* job, Peers* peers,
               const Departures* departures, StoppedRanks* stopped, LinkSigns* signs,
               const Diagnosis* diagnosis);

  // With each heartbeat. Logs who is waited for.
  std::optional<Cause> Look(int64_t now_us);

  // Peers to whom a large frame is to be sent, once: their links say next time whether it arrives.
  std::set<GlobalRank> TakeDoubtful() { return std::exchange(doubtful_, {}); }

  // When this process had last not run for a while.
  int64_t held_up_us() const { return held_up_us_; }

 private:
  struct Links {  // of one peer
    int64_t life_us = 0;
    int64_t watch_owed_us = 0;
    int64_t data_owed_us = -1;  // the most of any link for data; -1: there is none
    bool is_tested = false;     // with a large frame
  };

  void Note(const std::vector<LinkSign>& signs, int64_t now_us);
  int64_t SilenceOf(const WatchedPeer& peer, int64_t now_us);
  int64_t Allowance(GlobalRank peer);
  std::optional<Cause> OfPeer(WatchedPeer* peer, int64_t now_us);
  std::optional<Cause> OfLink(const LinkSign& sign, int64_t now_us);

  const int64_t timeout_us_;
  const int64_t stopped_us_;
  const int64_t start_us_;
  const Topology* const job_;
  Peers* const peers_;
  const Departures* const departures_;
  StoppedRanks* const stopped_;
  LinkSigns* const signs_;
  const Diagnosis* const diagnosis_;
  int64_t last_us_;
  int64_t held_up_us_ = 0;
  std::map<GlobalRank, Links> links_;
  std::map<int, int64_t> round_trips_us_;  // the longest of each host, as of now
  std::set<GlobalRank> doubtful_;
};

}  // namespace hvd
