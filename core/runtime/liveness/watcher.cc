#include "runtime/liveness/watcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/prepare_to_throw.h"
#include "runtime/liveness/peer.h"
#include "transport/farewell.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kOrphanGrace = 2 * kSecond;  // between SIGTERM and SIGKILL when the launcher is gone
constexpr int kDepartedRoundMs = 250;
// A process that is killed closes its links one after the other, and may be held up in between.
constexpr int64_t kHearOutUs = 150000;
constexpr int kSuspicionRoundMs = 10;
constexpr size_t kSpareSuspicions = 8;
// How long a goodbye may take to arrive before its link is closed all the same.
constexpr int64_t kGoodbyeUs = kSecond / 2;
constexpr useconds_t kFlushPauseUs = 500;

std::string Died(const WatchedPeer& peer) {
  return peer.Describe() + " died: its connection ended without a goodbye.";
}

std::string Seconds(int64_t us) {
  std::string text = std::to_string(us / kSecond) + "." + std::to_string(us % kSecond / 100000);
  return text + " s";
}

}  // namespace

// All that the failure of a job needs is made here, while there is memory.
Watcher::Watcher(WatcherOptions options, AbortCell* abort)
    : options_(std::move(options)),
      launcher_(options_.launcher, options_.launcher_frames),
      links_(Adopt(options_.links)),
      abort_(abort),
      departures_(options_.size),
      out_of_memory_(OutOfMemory(options_.rank, "watched the other ranks")) {
  for (size_t i = 0; i < links_.size(); ++i) {
    peers_.push_back(std::make_unique<WatchedPeer>(options_.links[i], std::move(links_[i]), options_.home));
  }
  fds_.reserve(peers_.size() + 2);
  const size_t suspicions = 2 * peers_.size() + kSpareSuspicions;  // of each peer's links of two roles
  suspicions_.reserve(suspicions);
  heard_.reserve(suspicions);
}

Watcher::~Watcher() { Stop(); }

WatchNews Watcher::News(WatchKind kind) const {
  WatchNews news = NewsOfItself(kind);
  if (PassesOn()) news.departures = departures_.Encode();
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
  last_round_us_ = NowMicros();
  for (auto& peer : peers_) peer->heard_us = last_round_us_;
  Beat();
  thread_ = std::thread([this] { PrepareToThrow(), Run(); });
  return Status::Ok();
}

void Watcher::Suspect(Cause cause) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back({std::move(cause), NowMicros(), false});
  }
  waker_.Ring();
}

void Watcher::Abort(Cause cause) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_.emplace(std::move(cause));
  }
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
  try {
    work();
  } catch (const std::bad_alloc&) {
    Raise(out_of_memory_);
  }
}

void Watcher::Run() noexcept {
  const int64_t period = static_cast<int64_t>(options_.heartbeat_seconds * kSecond);
  int64_t next_beat = last_round_us_ + period;
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
    Attempt([this, wait_ms] { Wait(static_cast<int>(std::min<int64_t>(wait_ms, LongestRoundMs()))); });
  }
  Attempt([this] { HearSuspicions(0); });
  SayGoodbye();
}

void Watcher::SayGoodbye() noexcept {
  WatchNews goodbye = NewsOfItself(WatchKind::kGoodbye);
  try {
    goodbye = News(WatchKind::kGoodbye);
  } catch (const std::bad_alloc&) {
    // Who else has left the peers learn from others.
  }
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
  const bool departed = !departures_.all().empty();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!suspicions_.empty() || failure_) return kSuspicionRoundMs;
  return departed || launcher_gone_us_ != 0 ? kDepartedRoundMs : std::numeric_limits<int>::max();
}

void Watcher::Wait(int timeout_ms) {
  fds_.clear();
  for (const auto& peer : peers_) fds_.push_back({peer->fd(), POLLIN, 0});  // a closed one is -1: ignored
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
  if (fds_.back().revents != 0) LauncherGone();
  if (launcher_gone_us_ != 0 && NowMicros() - launcher_gone_us_ > kOrphanGrace) kill(getpid(), SIGKILL);
}

void Watcher::Beat() {
  std::vector<BlockedPeer> known;
  for (const auto& peer : peers_) known.push_back({peer->rank().value(), peer->departed, peer->blocked});
  blocked_ = Combine(options_.rank.value(), options_.size, options_.blocked_us(), known);
  everybody_blocked_us_.store(blocked_.all);
  Send(News(WatchKind::kHeartbeat));
  options_.on_heartbeat();
}

void Watcher::CheckSilence(int64_t now_us) {
  const int64_t timeout = static_cast<int64_t>(options_.timeout_seconds * kSecond);
  const int64_t round = now_us - last_round_us_;
  last_round_us_ = now_us;
  if (round > timeout / 2) {
    // This process itself was held up (suspended container, overloaded host): the peers get a fresh start.
    for (auto& peer : peers_) peer->heard_us = now_us;
    return;
  }
  for (auto& peer : peers_) {
    if (!peer->open() || peer->departed) continue;
    const int64_t silence = now_us - peer->heard_us;
    const std::string state = silence > timeout / 2 ? peer->ProcessState() : "";
    const std::string text = peer->Describe() + " has not responded for " + Seconds(silence) +
                             (state.empty() ? "" : " (process is " + state + ")");
    // A process that the kernel shows running may only be short of CPU: it gets more time.
    const int64_t limit = state == "alive" ? 3 * timeout / 2 : timeout;
    if (silence > limit) {
      Raise(About(
          CauseKind::kSilent, peer->rank(),
          text + ". Look at what that process does (for example with py-spy dump), then restart the job."));
    } else if (silence > timeout / 2 && !peer->warned) {
      peer->warned = true;
      Log(LogLevel::kWarning, text);
    }
  }
}

void Watcher::CheckDeparted() {
  for (const Departure& departure : departures_.all()) {
    if (abort_->is_set()) return;
    const std::string stuck = options_.stuck_without(departure, false);
    if (!stuck.empty()) Missed(departure, stuck);
  }
}

void Watcher::Missed(const Departure& departure, const std::string& why) {
  Raise(About(CauseKind::kLeft, departure.rank,
              Describe(departure.rank) +
                  " has left the job (its program ended, failed or called shutdown()), but " + why +
                  " Every rank must take part in every operation; look for a rank that leaves its loop "
                  "early."));
}

std::string Watcher::Describe(GlobalRank rank) const {
  const WatchedPeer* peer = Find(rank);
  return peer != nullptr ? peer->Describe() : Name(rank);
}

void Watcher::HearSuspicions(int64_t patience_us) {
  heard_.clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    heard_.swap(suspicions_);
    if (failure_) heard_.push_back({*std::exchange(failure_, std::nullopt), NowMicros(), true});
  }
  if (heard_.empty()) return;
  for (auto& peer : peers_) HearPeer(*peer);
  for (Suspicion& suspicion : heard_) {
    if (Settle(&suspicion, patience_us)) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back(std::move(suspicion));
  }
}

// A suspicion becomes the cause when the watch links have told nothing better for so long. False: it has to
// wait.
bool Watcher::Settle(Suspicion* suspicion, int64_t patience_us) {
  if (abort_->is_set()) return true;
  if (const Departure* departure = departures_.Find(suspicion->cause.culprit)) {
    AfterGoodbye(*departure, *suspicion);
    return true;
  }
  // Of itself a rank knows best.
  const bool own = suspicion->cause.culprit == options_.rank;
  if (!own && NowMicros() - suspicion->since_us < patience_us) return false;
  Judge(std::move(suspicion->cause));
  return true;
}

const WatchedPeer* Watcher::Find(GlobalRank rank) const {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [rank](const auto& p) { return p->rank() == rank; });
  return found == peers_.end() ? nullptr : found->get();
}

// Who has said goodbye may close its links, and CheckDeparted knows whether it is missed; unless this rank
// has stopped for want of it, for then no operation gets any further.
void Watcher::AfterGoodbye(const Departure& departure, const Suspicion& suspicion) {
  if (!suspicion.broken) return;
  if (suspicion.cause.kind != CauseKind::kLink) return Raise(suspicion.cause);
  const std::string stuck = options_.stuck_without(departure, true);
  Missed(departure, stuck.empty() ? suspicion.cause.reason.str() + "." : stuck);
}

// The links have told nothing better than this suspicion.
void Watcher::Judge(Cause cause) {
  const WatchedPeer* peer = cause.kind == CauseKind::kLink ? Find(cause.culprit) : nullptr;
  if (peer == nullptr) return Raise(cause);
  const bool dead = peer->open() ? peer->ProcessState() == "dead" : !peer->Lives();
  if (dead) return Raise(About(CauseKind::kDied, peer->rank(), Died(*peer)));
  // The same text at both ends.
  const std::string own = Name(options_.rank) + " (pid " + std::to_string(getpid()) + ")";
  const bool own_first = options_.rank < peer->rank();
  cause.other = std::max(options_.rank, peer->rank());
  cause.culprit = std::min(options_.rank, peer->rank());
  cause.reason = "the " + std::string(Name(cause.link)) + " link between " +
                 (own_first ? own : peer->Describe()) + " and " + (own_first ? peer->Describe() : own) +
                 " broke although both are alive (" + cause.reason.str() +
                 "). Look for what lies between them: a firewall, a proxy, or a program that closes sockets.";
  Raise(cause);
}

void Watcher::HearEnd(WatchedPeer& peer) {
  peer.Close();
  if (departures_.Has(peer.rank())) return;
  if (!peer.Lives()) return Raise(About(CauseKind::kDied, peer.rank(), Died(peer)));
  Cause cause = About(CauseKind::kLink, peer.rank(), "the connection was closed");
  cause.link = LinkRole::kWatch;
  Suspect(std::move(cause));
}

void Watcher::HearPeer(WatchedPeer& peer) {
  WatchNews news;
  while (peer.open()) {
    switch (peer.Receive(&news)) {
      case WatchedPeer::Heard::kNothing:
        return;
      case WatchedPeer::Heard::kCorrupt:
        Raise(About(CauseKind::kCorrupt, peer.rank(),
                    "the watch link to " + peer.Describe() + " carries corrupt or forged frames."));
        peer.Close();  // after the peer has been told: else it sees a broken link
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
  peer.warned = false;
  peer.pid = news.pid;
  peer.home = news.home;
  if (news.kind == WatchKind::kAbort) return Raise(news.cause);
  bool is_new = departures_.Merge(news.departures, peer.heard_us);
  if (news.kind == WatchKind::kHeartbeat) peer.blocked = news.blocked;
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

// Whether a peer may not know what this rank knows.
bool Watcher::PassesOn() const { return static_cast<int>(peers_.size()) < options_.size - 1; }

void Watcher::PassOnStacks(uint32_t asked) {
  stacks_asked_ = asked;
  WatchNews news = News(WatchKind::kShowStacks);
  news.stacks = asked;
  Send(news);
}

void Watcher::LauncherGone() {
  if (!launcher_.Ended()) return;
  launcher_gone_us_ = NowMicros();
  Log(LogLevel::kError, "the launcher is gone: this rank ends");
  kill(getpid(), SIGTERM);
}

void Watcher::Raise(const Cause& cause) noexcept {
  if (abort_->is_set()) return;
  // First tell, then set: whoever sees the cause here closes links, and peers must not blame this rank for
  // that.
  WatchNews news = NewsOfItself(WatchKind::kAbort);
  news.cause = cause;
  Send(news);
  launcher_.Report(cause);
  if (abort_->Set(cause)) options_.on_abort();
}

}  // namespace hvd
