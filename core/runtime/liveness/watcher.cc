#include "runtime/liveness/watcher.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "settings/log.h"
#include "transport/descriptor.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int kDepartedRoundMs = 250;
// A process that is killed closes its links one after the other, and may be held up in between.
constexpr int64_t kHearOutUs = 150000;
constexpr int kSuspicionRoundMs = 10;
// How long a goodbye may take to arrive before its link is closed all the same.
constexpr int64_t kGoodbyeUs = kSecond / 2;
constexpr useconds_t kFlushPauseUs = 500;

int64_t Micros(double seconds) { return static_cast<int64_t>(seconds * kSecond); }

}  // namespace

// All that the failure of a job needs is made here, while there is memory.
Watcher::Watcher(WatcherOptions options, AbortCell* abort)
    : options_(std::move(options)),
      launcher_(options_.launcher, options_.orphan_seconds, options_.ask_for_launcher),
      links_(Adopt(options_.links)),
      abort_(abort),
      departures_(options_.size),
      stopped_(options_.size, Micros(options_.patience.peer_seconds)),
      diagnosis_(options_.rank, &options_.job, &peers_, &departures_, options_.stuck_without),
      silence_(options_.patience, &options_.job, &peers_, &departures_, &stopped_, options_.signs,
               &diagnosis_),
      suspicions_(options_.links.size()),
      out_of_memory_(OutOfMemory(options_.rank, "watched the other ranks")) {
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = options_.links[i];
    peers_.push_back(std::make_unique<WatchedPeer>(
        link, std::move(links_[i]), options_.job.Describe(link.peer), options_.home));
    if (options_.signs != nullptr) options_.signs->Add(peers_.back()->fd(), link.peer, link.role);
  }
  fds_.reserve(peers_.size() + 2);
  // Later than peers are lost: the program is to see that error first.
  launcher_.ProbeHost(2 * options_.patience.peer_seconds);
}

Watcher::~Watcher() { Stop(); }

WatchNews Watcher::News(WatchKind kind) {
  WatchNews news = NewsOfItself(kind);
  if (PassesOn()) news.departures = departures_.Encode();
  if (kind == WatchKind::kHeartbeat) news.stopped = stopped_.Encode(NowMicros());
  return news;
}

// Without memory.
WatchNews Watcher::NewsOfItself(WatchKind kind) const noexcept {
  WatchNews news;
  news.kind = kind;
  news.generation = options_.generation;
  news.pid = getpid();
  news.home = options_.home;
  news.blocked = blocked_;
  return news;
}

void Watcher::Send(const WatchNews& news) noexcept {
  for (auto& peer : peers_) peer->Send(news);
}

Status Watcher::Start() {
  HVD_RETURN_IF_ERROR(waker_.status());
  const int64_t now = NowMicros();
  for (auto& peer : peers_) peer->heard_us = now;
  Beat();
  thread_ = std::thread([this] { PrepareToThrow(), Run(); });
  return Status::Ok();
}

void Watcher::Suspect(Cause cause) {
  suspicions_.Add(std::move(cause));
  waker_.Ring();
}

void Watcher::Abort(Cause cause) noexcept {
  suspicions_.AddFailure(std::move(cause));
  waker_.Ring();
}

void Watcher::RenewLauncher(const Link& link) {
  launcher_.Renew(link);
  waker_.Ring();
}

void Watcher::AskForStacks() {
  asks_for_stacks_.store(true);
  waker_.Ring();
}

void Watcher::Stop(bool abandons) {
  if (thread_.joinable()) {
    abandons_ = abandons;
    stopping_.store(true);
    waker_.Ring();
    thread_.join();
  }
  peers_.clear();
  launcher_.Close();
}

// What there is no memory for ends the generation. The thread goes on: it has to say goodbye.
template <typename Work>
void Watcher::Attempt(Work work) noexcept {
  if (!HasMemoryFor(work)) Raise(out_of_memory_);
}

void Watcher::Run() noexcept {
  const int64_t period = Micros(options_.heartbeat_seconds);
  int64_t next_beat = NowMicros() + period;
  int64_t next_telling = 0;
  while (!stopping_.load()) {
    const int64_t now = NowMicros();
    if (now >= next_beat) {
      next_beat = now + period;
      Attempt([this] { Beat(); });
      Attempt([this, now] { CheckSilence(now); });
    }
    if (untold_ && now >= next_telling) {
      Attempt([this] { Send(News(WatchKind::kHeartbeat)); });
      untold_ = false;
      next_telling = now + kDepartedRoundMs * 1000;
    }
    Attempt([this] { CheckDeparted(); });
    const int64_t wait_ms = (next_beat - now) / 1000 + 1;
    Attempt(
        [this, wait_ms] { Wait(static_cast<int>(std::min<int64_t>(wait_ms, LongestRoundMs()))); });
  }
  Attempt([this] { HearSuspicions(0); });
  SayGoodbye();
}

void Watcher::SayGoodbye() noexcept {
  WatchNews goodbye = NewsOfItself(WatchKind::kGoodbye);
  // Without memory for more the peers learn from others who else has left.
  HasMemoryFor([&] { goodbye = News(WatchKind::kGoodbye); });
  goodbye.abandons = abandons_;
  Send(goodbye);
  const int64_t deadline = NowMicros() + kGoodbyeUs;
  const auto flushed = [](const auto& peer) { return peer->flushed(); };
  while (!std::all_of(peers_.begin(), peers_.end(), flushed) && NowMicros() < deadline) {
    usleep(kFlushPauseUs);
    for (auto& peer : peers_) peer->Flush();
  }
  for (size_t i = 0; i < peers_.size(); ++i) links_[i] = peers_[i]->Release();
  CloseDelivered(std::move(links_), kGoodbyeUs);
}

int Watcher::LongestRoundMs() {
  if (suspicions_.any()) return kSuspicionRoundMs;
  const bool departed = !departures_.all().empty();
  return departed || launcher_.gone() ? kDepartedRoundMs : std::numeric_limits<int>::max();
}

void Watcher::Wait(int timeout_ms) {
  fds_.clear();
  for (const auto& peer : peers_)
    fds_.push_back({peer->fd(), POLLIN, 0});  // a closed one is -1: ignored
  fds_.push_back({waker_.fd(), POLLIN, 0});
  fds_.push_back({launcher_.fd(), POLLIN, 0});
  if (poll(fds_.data(), fds_.size(), timeout_ms) < 0) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (fds_[i].revents != 0) HearPeer(*peers_[i]);
  }
  if (fds_[peers_.size()].revents != 0) {
    waker_.Drain();
    if (asks_for_stacks_.exchange(false)) PassOnStacks(stacks_asked_ + 1);
  }
  HearSuspicions(kHearOutUs);
  if (fds_.back().revents != 0) launcher_.Hear();
  launcher_.UseRenewed();
  launcher_.EndOrphan();
}

void Watcher::Beat() {
  std::vector<BlockedPeer> known;
  for (const auto& peer : peers_)
    known.push_back({peer->rank().value(), peer->departed, peer->blocked});
  blocked_ = Combine(options_.rank.value(), options_.size, options_.blocked_us(), known);
  everybody_blocked_us_.store(blocked_.all);
  Send(News(WatchKind::kHeartbeat));
  options_.on_heartbeat();
}

void Watcher::CheckSilence(int64_t now_us) {
  const bool knew_stopped = stopped_.Any(now_us);
  const std::optional<Cause> cause = silence_.Look(now_us);
  if (cause) return Raise(*cause);
  untold_ |= !knew_stopped && stopped_.Any(now_us);
  WatchNews wide = NewsOfItself(WatchKind::kHeartbeat);
  wide.is_wide = true;
  for (const GlobalRank doubtful : silence_.TakeDoubtful()) {
    if (WatchedPeer* const peer = Find(doubtful, peers_)) peer->Send(wide);
  }
}

void Watcher::CheckDeparted() {
  if (abort_->is_set()) return;
  if (const std::optional<Cause> cause = diagnosis_.OfDepartures()) Raise(*cause);
}

void Watcher::HearSuspicions(int64_t hear_out_us) {
  std::vector<Suspicion>& suspicions = suspicions_.Take();
  if (suspicions.empty()) return;
  for (auto& peer : peers_) HearPeer(*peer);
  for (Suspicion& suspicion : suspicions) {
    if (abort_->is_set()) return;
    const Diagnosis::Verdict verdict = diagnosis_.Settle(suspicion, hear_out_us);
    if (verdict.cause) Raise(*verdict.cause);
    if (!verdict.settled) suspicions_.PutBack(std::move(suspicion));
  }
}

void Watcher::Close(WatchedPeer* peer) {
  if (options_.signs != nullptr) options_.signs->Remove(peer->fd());
  peer->Close();
}

void Watcher::HearEnd(WatchedPeer& peer) {
  Close(&peer);
  if (departures_.Has(peer.rank())) return;
  Cause cause = diagnosis_.OfEnd(peer);
  if (cause.kind != CauseKind::kLink) return Raise(cause);
  Suspect(std::move(cause));
}

void Watcher::HearPeer(WatchedPeer& peer) {
  WatchNews news;
  while (peer.open()) {
    switch (peer.Receive(&news)) {
      case WatchedPeer::Heard::kNothing:
        return;
      case WatchedPeer::Heard::kCorrupt:
        Raise(diagnosis_.OfCorruptFrame(peer));
        Close(&peer);  // after the peer has been told: else it sees a broken link
        return;
      case WatchedPeer::Heard::kEnd:
        return HearEnd(peer);
      case WatchedPeer::Heard::kNews:
        break;
    }
    if (news.generation == options_.generation) HearNews(peer, news);
  }
}

void Watcher::HearNews(WatchedPeer& peer, const WatchNews& news) {
  peer.heard_us = NowMicros();
  peer.warned = peer.awaited = false;
  peer.pid = news.pid;
  peer.home = news.home;
  if (news.kind == WatchKind::kAbort) return HearAbort(peer, news.cause);
  bool is_new = departures_.Merge(news.departures, peer.heard_us);
  if (news.kind == WatchKind::kHeartbeat) {
    peer.blocked = news.blocked;
    untold_ |= stopped_.Merge(news.stopped, peer.heard_us);
  }
  if (news.kind == WatchKind::kShowStacks && news.stacks > stacks_asked_) {
    options_.on_show_stacks();
    PassOnStacks(news.stacks);
  }
  if (news.kind == WatchKind::kGoodbye) {
    peer.departed = true;
    is_new |= departures_.Add({peer.rank(), peer.heard_us, news.abandons});
  }
  untold_ |= is_new && PassesOn();
}

// Of itself a rank knows better than others whether it was there.
void Watcher::HearAbort(WatchedPeer& peer, const Cause& cause) {
  const bool of_itself = cause.kind == CauseKind::kSilent && cause.culprit == options_.rank;
  const bool was_there =
      NowMicros() - silence_.held_up_us() > Micros(2 * options_.patience.peer_seconds);
  Raise(of_itself && was_there && !options_.job.OnOneHost(peer.rank(), options_.rank)
            ? diagnosis_.OfDeafPeer(peer, cause)
            : cause);
}

// Whether a peer may not know what this rank knows.
bool Watcher::PassesOn() const { return static_cast<int>(peers_.size()) < options_.size - 1; }

void Watcher::PassOnStacks(uint32_t asked) {
  stacks_asked_ = asked;
  WatchNews news = News(WatchKind::kShowStacks);
  news.stacks = asked;
  Send(news);
}

void Watcher::Raise(const Cause& cause) noexcept {
  if (abort_->is_set()) return;
  // First tell, then set: whoever sees the cause here closes links, and peers must not blame this
  // rank for that.
  WatchNews news = NewsOfItself(WatchKind::kAbort);
  news.cause = cause;
  Send(news);
  launcher_.Report(cause);
  if (abort_->Set(cause)) options_.on_abort();
}

}  // namespace hvd
