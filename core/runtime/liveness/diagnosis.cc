#include "runtime/liveness/diagnosis.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hvd {

Cause Diagnosis::OfEnd(const WatchedPeer& peer) const {
  if (!peer.Lives()) return Died(peer);
  Cause cause = About(CauseKind::kLink, peer.rank(), "the connection was closed");
  cause.link = LinkRole::kWatch;
  return cause;
}

Cause Diagnosis::OfCorruptFrame(const WatchedPeer& peer) const {
  return About(CauseKind::kCorrupt, peer.rank(),
               "the watch link to " + peer.Describe() + " carries corrupt or forged frames.");
}

Cause Diagnosis::OfSilence(const WatchedPeer& peer, const std::string& silence) const {
  const char* host = job_->OnOneHost(rank_, peer.rank())
                         ? ""
                         : "whether that host runs and the network leads to it, and ";
  return About(CauseKind::kSilent, peer.rank(),
               silence + ". Look " + host +
                   "at what that process does (for example with py-spy dump), then restart the "
                   "job.");
}

std::optional<Cause> Diagnosis::OfDepartures() const {
  for (const Departure& departure : departures_->all()) {
    const std::string stuck = stuck_without_(departure, false);
    if (!stuck.empty()) return Missed(departure, stuck);
  }
  return std::nullopt;
}

Cause Diagnosis::Missed(const Departure& departure, const std::string& why) const {
  const WatchedPeer* peer = Find(departure.rank);
  return About(
      CauseKind::kLeft, departure.rank,
      (peer != nullptr ? peer->Describe() : job_->Describe(departure.rank)) +
          " has left the job (its program ended, failed or called shutdown()), but " + why +
          " Every rank must take part in every operation; look for a rank that leaves its loop "
          "early.");
}

Diagnosis::Verdict Diagnosis::Settle(const Suspicion& suspicion, int64_t hear_out_us) const {
  const Cause& cause = suspicion.cause;
  if (const Departure* departure = departures_->Find(cause.culprit)) {
    return {true, AfterGoodbye(*departure, suspicion)};
  }
  // Of itself a rank knows best.
  const bool own = cause.culprit == rank_;
  if (!own && NowMicros() - suspicion.since_us < hear_out_us) return {false, std::nullopt};
  const WatchedPeer* peer = cause.kind == CauseKind::kLink ? Find(cause.culprit) : nullptr;
  return {true, peer == nullptr ? cause : OfLink(*peer, cause)};
}

// Who has said goodbye may close its links, and OfDepartures knows whether it is missed; unless
// this rank has stopped for want of it, for then no operation gets any further.
std::optional<Cause> Diagnosis::AfterGoodbye(const Departure& departure,
                                             const Suspicion& suspicion) const {
  if (!suspicion.broken) return std::nullopt;
  if (suspicion.cause.kind != CauseKind::kLink) return suspicion.cause;
  const std::string stuck = stuck_without_(departure, true);
  return Missed(departure, stuck.empty() ? suspicion.cause.reason.str() + "." : stuck);
}

// A link to `peer` broke, and the watch links have told nothing better.
Cause Diagnosis::OfLink(const WatchedPeer& peer, Cause cause) const {
  const bool dead = peer.open() ? peer.ProcessState() == "dead" : !peer.Lives();
  if (dead) return Died(peer);
  // The same text at both ends.
  const std::string own = job_->Describe(rank_) + " (pid " + std::to_string(getpid()) + ")";
  const bool own_first = rank_ < peer.rank();
  cause.other = std::max(rank_, peer.rank());
  cause.culprit = std::min(rank_, peer.rank());
  cause.reason =
      "the " + std::string(Name(cause.link)) + " link between " +
      (own_first ? own : peer.Describe()) + " and " + (own_first ? peer.Describe() : own) +
      " broke although both are alive (" + cause.reason.str() +
      "). Look for what lies between them: a firewall, a proxy, or a program that closes sockets.";
  return cause;
}

// Of another host nothing tells a process that ended from a network that did.
Cause Diagnosis::Died(const WatchedPeer& peer) const {
  const bool near = job_->OnOneHost(rank_, peer.rank());
  return About(CauseKind::kDied, peer.rank(),
               peer.Describe() + " died" + (near ? "" : ", or the network to its host broke") +
                   ": its connection ended without a goodbye.");
}

const WatchedPeer* Diagnosis::Find(GlobalRank rank) const {
  const auto found = std::find_if(peers_->begin(), peers_->end(),
                                  [rank](const auto& p) { return p->rank() == rank; });
  return found == peers_->end() ? nullptr : found->get();
}

}  // namespace hvd
