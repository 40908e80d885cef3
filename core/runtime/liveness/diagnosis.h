#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rank.h"
#include "base/topology.h"
#include "runtime/liveness/cause.h"
#include "runtime/liveness/departures.h"
#include "runtime/liveness/peer.h"
#include "runtime/liveness/suspicions.h"
#include "transport/link_signs.h"

namespace hvd {

using Peers = std::vector<std::unique_ptr<WatchedPeer>>;
// Null: this rank does not watch it.
inline WatchedPeer* Find(GlobalRank rank, const Peers& peers) {
  for (const auto& peer : peers) {
    if (peer->rank() == rank) return peer.get();
  }
  return nullptr;
}

// Why this rank can no longer make progress without the departed rank; empty: it can. `broken`: a
// link to it that is needed has ended, so that nothing more can come.
using StuckWithout = std::function<std::string(const Departure&, bool broken)>;

// Which cause a failure has, by what this rank knows of the others: what is closed, who has left,
// what the kernel says of a process. It finds causes and does nothing about them.
class Diagnosis {
 public:
  // All for the watcher's thread, and outlived by it.
  Diagnosis(GlobalRank rank, const Topology* job, const Peers* peers, const Departures* departures,
            StuckWithout stuck_without)
      : rank_(rank),
        job_(job),
        peers_(peers),
        departures_(departures),
        stuck_without_(std::move(stuck_without)) {}

  // Of a suspicion: what is not settled has to wait, what is settled without a cause is no failure.
  struct Verdict {
    bool settled;
    std::optional<Cause> cause;
  };
  // A suspicion becomes the cause when the watch links have told nothing better for `hear_out_us`;
  // of a rank that this one does not watch, news come by way of others, so they get longer.
  Verdict Settle(const Suspicion& suspicion, int64_t hear_out_us) const;

  // The watch link to this peer, which has said no goodbye, has ended. kDied, or kLink, which is no
  // more than a suspicion.
  Cause OfEnd(const WatchedPeer& peer) const;
  Cause OfCorruptFrame(const WatchedPeer& peer) const;
  Cause OfSilence(const WatchedPeer& peer, const std::string& silence) const;
  // The host of a peer that is heard acknowledges nothing on this link. `loses_large`: nor a large
  // frame on another one.
  Cause OfSilentLink(const LinkSign& sign, bool loses_large) const;
  // `peer`, which is heard here, has not heard this rank for too long.
  Cause OfDeafPeer(const WatchedPeer& peer, const Cause& told) const;

  // The first of those that have left without whom this rank cannot go on, if there is one.
  std::optional<Cause> OfDepartures() const;

 private:
  Cause Died(const WatchedPeer& peer) const;
  Cause Missed(const Departure& departure, const std::string& why) const;
  std::optional<Cause> AfterGoodbye(const Departure& departure, const Suspicion& suspicion) const;
  Cause OfLink(Cause cause) const;
  Cause Between(Cause cause, const std::string& what) const;

  const GlobalRank rank_;
  const Topology* const job_;
  const Peers* const peers_;
  const Departures* const departures_;
  const StuckWithout stuck_without_;
};

}  // namespace hvd
