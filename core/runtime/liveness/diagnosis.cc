#include "runtime/liveness/diagnosis.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hvd {

namespace {

// What a goodbye may take by way of others: each passes it on at once, or soon.
constexpr int64_t kNewsUs = 5'000'000;

}  // namespace

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
  const bool broken_link = cause.kind == CauseKind::kLink && cause.culprit.known();
  const bool unwatched = broken_link && Find(cause.culprit) == nullptr;
  // Who is leaving itself waits for no goodbye that is still on its way.
  if (unwatched && hear_out_us == 0 && !suspicion.broken) return {true, std::nullopt};
  const int64_t patience_us = unwatched && hear_out_us > 0 ? kNewsUs : hear_out_us;
  // Of itself a rank knows best.
  const bool own = cause.culprit == rank_;
  if (!own && NowMicros() - suspicion.since_us < patience_us) return {false, std::nullopt};
  return {true, broken_link ? OfLink(cause) : cause};
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

// A link broke, and the watch links have told nothing better.
Cause Diagnosis::OfLink(Cause cause) const {
  const GlobalRank rank = cause.culprit;
  const WatchedPeer* const peer = Find(rank);
  const bool dead =
      peer != nullptr && (peer->open() ? peer->ProcessState() == "dead" : !peer->Lives());
  if (dead) return Died(*peer);
  // The same text at both ends.
  const std::string own = job_->Describe(rank_) + " (pid " + std::to_string(getpid()) + ")";
  const std::string theirs = peer != nullptr ? peer->Describe() : job_->Describe(rank);
  const bool own_first = rank_ < rank;
  cause.other = std::max(rank_, rank);
  cause.culprit = std::min(rank_, rank);
  cause.reason =
      "the " + std::string(Name(cause.link)) + " link between " + (own_first ? own : theirs) +
      " and " + (own_first ? theirs : own) + " broke although both are alive (" +
      cause.reason.str() +
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
