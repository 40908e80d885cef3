#include "runtime/liveness/diagnosis.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace hvd {

namespace {

// What a goodbye may take by way of others: each passes it on at once, or soon.
constexpr int64_t kNewsUs = 5'000'000;
// What is acknowledged later than this was lost on its way at least once.
constexpr int64_t kDoubtUs = 2'000'000;

// Whether a connection that its host has ended, and so is heard, leads one way only.
bool Owes(const WatchedPeer& peer) { return peer.owed_us > kDoubtUs; }

}  // namespace

Cause Diagnosis::OfEnd(const WatchedPeer& peer) const {
  if (!peer.Lives() && !Owes(peer)) return Died(peer);
  Cause cause = About(CauseKind::kLink, peer.rank(), "the connection was closed");
  cause.link = LinkRole::kWatch;
  return cause;
}

Cause Diagnosis::OfCorruptFrame(const WatchedPeer& peer) const {
  return About(CauseKind::kCorrupt, peer.rank(),
               "the watch link to " + peer.Describe() + " carries corrupt or forged frames.");
}

Cause Diagnosis::OfSilence(const WatchedPeer& peer, const std::string& silence) const {
  std::string look =
      "at what that process does (for example with py-spy dump), then restart the job.";
  if (!job_->OnOneHost(rank_, peer.rank())) {
    look = peer.owed_us == 0 ? look + " Its host answers, and so does the network."
                             : "whether that host runs and the network leads to it, and " + look;
  }
  return About(CauseKind::kSilent, peer.rank(), silence + ". Look " + look);
}

Cause Diagnosis::OfSilentLink(const LinkSign& sign, bool loses_large) const {
  Cause cause = About(CauseKind::kLink, sign.peer, "");
  cause.link = sign.role;
  const std::string far = job_->DescribeHost(sign.peer);
  const std::string near = job_->DescribeHost(rank_);
  const std::string waited = " carries nothing: " + Name(rank_) + " has waited " +
                             SecondsText(sign.owed_us) + " for " + far +
                             " to acknowledge what it sent";
  if (loses_large) {
    return Between(cause, waited +
                              ". Small packets arrive there and large ones are lost: compare the "
                              "MTU of the interfaces of " +
                              near + ", " + far +
                              " and all between them (see Large packets in docs/networks.md).");
  }
  return Between(cause, waited +
                            ", although both are alive and hear each other. Look for what forgets "
                            "or drops connections between " +
                            near + " and " + far + ": a firewall, NAT, or one of several paths.");
}

Cause Diagnosis::OfDeafPeer(const WatchedPeer& peer, const Cause& told) const {
  Cause cause = About(CauseKind::kLink, peer.rank(), "");
  return Between(cause, " works one way only: what " + Name(rank_) +
                            " sends is lost, although it is alive (" + told.reason.str() + ")");
}

// The other end is the culprit so far. The same text at both ends.
Cause Diagnosis::Between(Cause cause, const std::string& what) const {
  const GlobalRank far = cause.culprit;
  const WatchedPeer* const peer = Find(far, *peers_);
  const std::string own = job_->Describe(rank_) + " (pid " + std::to_string(getpid()) + ")";
  const std::string theirs = peer != nullptr ? peer->Describe() : job_->Describe(far);
  const bool own_first = rank_ < far;
  cause.other = std::max(rank_, far);
  cause.culprit = std::min(rank_, far);
  cause.reason = "the " + std::string(Name(cause.link)) + " link between " +
                 (own_first ? own : theirs) + " and " + (own_first ? theirs : own) + what;
  return cause;
}

std::optional<Cause> Diagnosis::OfDepartures() const {
  for (const Departure& departure : departures_->all()) {
    const std::string stuck = stuck_without_(departure, false);
    if (!stuck.empty()) return Missed(departure, stuck);
  }
  return std::nullopt;
}

Cause Diagnosis::Missed(const Departure& departure, const std::string& why) const {
  const WatchedPeer* peer = Find(departure.rank, *peers_);
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
  const bool unwatched = broken_link && Find(cause.culprit, *peers_) == nullptr;
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
  const WatchedPeer* const peer = Find(rank, *peers_);
  const bool owes = peer != nullptr && Owes(*peer);
  const bool dead = peer != nullptr && !owes &&
                    (peer->open() ? peer->State() == ProcessState::kDead : !peer->Lives());
  if (dead) return Died(*peer);
  if (owes) {
    return Between(cause, " broke, after nothing that " + Name(rank_) +
                              " sent had been acknowledged for " + SecondsText(peer->owed_us) +
                              ": the network loses what goes from " + job_->DescribeHost(rank_) +
                              " to " + job_->DescribeHost(rank) + ".");
  }
  return Between(cause, " broke although both are alive (" + cause.reason.str() +
                            "). Look for what lies between them: a firewall, a proxy, or a "
                            "program that closes sockets.");
}

// Of another host nothing tells a process that ended from a network that did.
Cause Diagnosis::Died(const WatchedPeer& peer) const {
  const bool near = job_->OnOneHost(rank_, peer.rank());
  return About(CauseKind::kDied, peer.rank(),
               peer.Describe() + " died" + (near ? "" : ", or the network to its host broke") +
                   ": its connection ended without a goodbye.");
}

}  // namespace hvd
