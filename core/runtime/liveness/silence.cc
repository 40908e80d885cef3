#include "runtime/liveness/silence.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "settings/log.h"

namespace hvd {

namespace {

constexpr double kSecond = 1e6;
// A full queue on the way delays all that goes to a host by as much as its acknowledgements show,
// and what the queue drops comes a few times later.
constexpr int64_t kRoundTrips = 4;

}  // namespace

SilenceCheck::SilenceCheck(const Patience& patience, const Topology* job, Peers* peers,
                           const Departures* departures, StoppedRanks* stopped, LinkSigns* signs,
                           const Diagnosis* diagnosis)
    : timeout_us_(static_cast<int64_t>(patience.peer_seconds * kSecond)),
      stopped_us_(static_cast<int64_t>(patience.stopped_seconds * kSecond)),
      start_us_(static_cast<int64_t>(patience.start_seconds * kSecond)),
      job_(job),
      peers_(peers),
      departures_(departures),
      stopped_(stopped),
      signs_(signs),
      diagnosis_(diagnosis),
      last_us_(NowMicros()) {}

std::optional<Cause> SilenceCheck::Look(int64_t now_us) {
  // More than a heartbeat, of which two fit into the timeout, and so little that whoever was heard
  // before is not lost yet.
  const bool held_up = now_us - last_us_ > 2 * timeout_us_ / 3;
  last_us_ = now_us;
  const std::vector<LinkSign> signs =
      signs_ == nullptr ? std::vector<LinkSign>() : signs_->Look(now_us, held_up);
  Note(signs, now_us);
  if (held_up) {
    // Nobody was heard because nobody listened: the process was stopped, its machine was paused, or
    // there is too much to do for it. The peers get a fresh start.
    held_up_us_ = now_us;
    for (auto& peer : *peers_) peer->heard_us = now_us;
    return std::nullopt;
  }
  for (auto& peer : *peers_) {
    if (!peer->open() || peer->departed) continue;
    if (std::optional<Cause> cause = OfPeer(peer.get(), now_us)) return cause;
  }
  for (const LinkSign& sign : signs) {
    if (departures_->Has(sign.peer)) continue;
    if (std::optional<Cause> cause = OfLink(sign, now_us)) return cause;
  }
  return std::nullopt;
}

void SilenceCheck::Note(const std::vector<LinkSign>& signs, int64_t now_us) {
  round_trips_us_.clear();
  for (auto& peer : *peers_) peer->owed_us = -1;
  for (auto& [rank, links] : links_) links.data_owed_us = -1;
  for (const LinkSign& sign : signs) {
    Links& links = links_[sign.peer];
    if (sign.arrived && sign.role != LinkRole::kWatch) links.life_us = now_us;
    if (sign.role == LinkRole::kWatch) links.watch_owed_us = sign.owed_us;
    if (sign.role == LinkRole::kData)
      links.data_owed_us = std::max(links.data_owed_us, sign.owed_us);
    int64_t& longest = round_trips_us_[job_->HostOf(Position(sign.peer.value()))];
    longest = std::max(longest, sign.round_trip_us);
    if (WatchedPeer* peer = Find(sign.peer, *peers_))
      peer->owed_us = std::max(peer->owed_us, sign.owed_us);
  }
}

int64_t SilenceCheck::SilenceOf(const WatchedPeer& peer, int64_t now_us) {
  return now_us - std::max(peer.heard_us, links_[peer.rank()].life_us);
}

int64_t SilenceCheck::Allowance(GlobalRank peer) {
  return timeout_us_ + kRoundTrips * round_trips_us_[job_->HostOf(Position(peer.value()))];
}

std::optional<Cause> SilenceCheck::OfPeer(WatchedPeer* peer, int64_t now_us) {
  const int64_t silence = SilenceOf(*peer, now_us);
  if (silence <= timeout_us_ / 2) return std::nullopt;
  const ProcessState state = peer->State();
  if (IsHeld(state)) stopped_->Add(peer->rank(), now_us);
  const bool is_stopped = stopped_->Has(peer->rank(), now_us);
  const std::string predicate = is_stopped && !IsHeld(state)
                                    ? "is stopped, as another rank of its host sees"
                                    : Predicate(state);
  std::string text = peer->Describe() + " has not responded for " + SecondsText(silence) +
                     (predicate.empty() ? "" : " (process " + predicate + ")");
  int64_t limit = Allowance(peer->rank());
  // A process that the kernel shows running may only be short of CPU: it gets more time.
  if (state == ProcessState::kAlive) limit = std::max(limit, 3 * timeout_us_ / 2);
  if (is_stopped) limit = std::max(limit, stopped_us_);
  if (peer->pid == 0) limit = std::max(limit, start_us_);
  if (silence > limit) return diagnosis_->OfSilence(*peer, text);
  if (is_stopped && !std::exchange(peer->awaited, true)) {
    const std::string pid = peer->pid > 0 ? " " + std::to_string(peer->pid) : "";
    Log(LogLevel::kWarning, text + ". The job waits until it goes on, for at most " +
                                SecondsText(stopped_us_) +
                                " in all (HOROVOD_STOPPED_TIMEOUT_SECONDS). Let it go on by kill "
                                "-CONT" +
                                pid + " on its host, or in the debugger, or resume its container.");
  } else if (!is_stopped && !std::exchange(peer->warned, true)) {
    Log(LogLevel::kWarning, text);
  }
  return std::nullopt;
}

// A peer that is silent on all its links is told of as such.
std::optional<Cause> SilenceCheck::OfLink(const LinkSign& sign, int64_t now_us) {
  Links& links = links_[sign.peer];
  if (links.data_owed_us == 0) links.is_tested = false;
  if (sign.owed_us <= timeout_us_ / 2) return std::nullopt;
  const WatchedPeer* const peer = Find(sign.peer, *peers_);
  if (peer != nullptr && SilenceOf(*peer, now_us) > timeout_us_ / 2) return std::nullopt;
  const bool is_watch = sign.role == LinkRole::kWatch;
  if (!is_watch && !std::exchange(links.is_tested, true)) doubtful_.insert(sign.peer);
  if (sign.owed_us <= Allowance(sign.peer)) return std::nullopt;
  const bool loses_large = links.is_tested && links.watch_owed_us > 0;
  return diagnosis_->OfSilentLink(sign, loses_large);
}

}  // namespace hvd
