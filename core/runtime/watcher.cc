#include "runtime/watcher.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/watched_peer.h"
#include "transport/farewell.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kOrphanGrace = 2 * kSecond;  // between SIGTERM and SIGKILL when the launcher is gone
constexpr int kDepartedRoundMs = 250;
// A process that is killed closes its links one after the other, and may be held up in between.
constexpr int64_t kHearOutUs = 150000;
constexpr int kSuspicionRoundMs = 10;
// How long a goodbye may take to arrive before its link is closed all the same.
constexpr int64_t kGoodbyeUs = kSecond / 2;
constexpr useconds_t kFlushPauseUs = 500;

Cause About(CauseKind kind, int culprit, std::string reason) {
  Cause cause;
  cause.kind = kind;
  cause.culprit = culprit;
  cause.reason = std::move(reason);
  return cause;
}

std::string Died(const WatchedPeer& peer) {
  return peer.Describe() + " died: its connection ended without a goodbye.";
}

std::string Seconds(int64_t us) {
  std::string text = std::to_string(us / kSecond) + "." + std::to_string(us % kSecond / 100000);
  return text + " s";
}

}  // namespace

Watcher::Watcher(WatcherOptions options, AbortCell* abort)
    : options_(std::move(options)),
      abort_(abort),
      launcher_(options_.launcher, options_.launcher_frames),
      departures_(options_.size) {
  for (const Link& link : options_.links)
    peers_.push_back(std::make_unique<WatchedPeer>(link, options_.home));
}

Watcher::~Watcher() { Stop(); }

WatchNews Watcher::News(WatchKind kind) const {
  WatchNews news;
  news.kind = kind;
  news.generation = options_.generation;
  news.pid = getpid();
  news.home = options_.home;
  news.blocked = blocked_;
  if (PassesOn()) news.departures = departures_.Encode();
  return news;
}

void Watcher::Send(const WatchNews& news) {
  for (auto& peer : peers_) peer->Send(news);
}

Status Watcher::Start() {
  HVD_RETURN_IF_ERROR(waker_.status());
  last_round_us_ = NowMicros();
  for (auto& peer : peers_) peer->heard_us = last_round_us_;
  Beat();
  thread_ = std::thread([this] { Run(); });
  return Status::Ok();
}

void Watcher::Hear(Suspicion suspicion) {
  suspicion.since_us = NowMicros();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back(std::move(suspicion));
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

void Watcher::Run() {
  const int64_t period = static_cast<int64_t>(options_.heartbeat_seconds * kSecond);
  int64_t next_beat = last_round_us_ + period;
  int64_t next_telling = 0;
  while (!stopping_.load()) {
    const int64_t now = NowMicros();
    if (now >= next_beat) {
      Beat();
      CheckSilence(now);
      next_beat = now + period;
    }
    if (untold_ && now >= next_telling) {
      Send(News(WatchKind::kHeartbeat));
      untold_ = false;
      next_telling = now + kDepartedRoundMs * 1000;
    }
    CheckDeparted();
    const int64_t wait_ms = (next_beat - now) / 1000 + 1;
    Wait(static_cast<int>(std::min<int64_t>(wait_ms, LongestRoundMs())));
  }
  HearSuspicions(0);
  SayGoodbye();
}

void Watcher::SayGoodbye() {
  WatchNews goodbye = News(WatchKind::kGoodbye);
  goodbye.abandons = abandons_;
  Send(goodbye);
  const int64_t deadline = NowMicros() + kGoodbyeUs;
  const auto flushed = [](const auto& peer) { return peer->flushed(); };
  while (!std::all_of(peers_.begin(), peers_.end(), flushed) && NowMicros() < deadline) {
    usleep(kFlushPauseUs);
    for (auto& peer : peers_) peer->Flush();
  }
  std::vector<Descriptor> links;
  for (auto& peer : peers_) links.push_back(peer->Release());
  CloseDelivered(std::move(links), kGoodbyeUs);
}

int Watcher::LongestRoundMs() {
  const bool departed = !departures_.all().empty();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!suspicions_.empty()) return kSuspicionRoundMs;
  return departed || launcher_gone_us_ != 0 ? kDepartedRoundMs : std::numeric_limits<int>::max();
}

void Watcher::Wait(int timeout_ms) {
  std::vector<pollfd> fds;
  for (const auto& peer : peers_) fds.push_back({peer->fd(), POLLIN, 0});  // a closed one is -1: ignored
  fds.push_back({waker_.fd(), POLLIN, 0});
  fds.push_back({launcher_.fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), timeout_ms) < 0) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (fds[i].revents != 0) HearPeer(*peers_[i]);
  }
  if (fds[peers_.size()].revents != 0) {
    waker_.Drain();
    if (asks_for_stacks_.exchange(false)) PassOnStacks(stacks_asked_ + 1);
  }
  HearSuspicions(kHearOutUs);
  if (fds.back().revents != 0) LauncherGone();
  if (launcher_gone_us_ != 0 && NowMicros() - launcher_gone_us_ > kOrphanGrace) kill(getpid(), SIGKILL);
}

void Watcher::Beat() {
  std::vector<BlockedPeer> known;
  for (const auto& peer : peers_) known.push_back({peer->rank(), peer->departed, peer->blocked});
  blocked_ = Combine(options_.rank, options_.size, options_.blocked_us(), known);
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

std::string Watcher::Describe(int rank) const {
  const WatchedPeer* peer = Find(rank);
  return peer != nullptr ? peer->Describe() : "rank " + std::to_string(rank);
}

// A suspicion becomes the cause when the watch links have told nothing better for so long.
void Watcher::HearSuspicions(int64_t patience_us) {
  std::vector<Suspicion> suspicions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions.swap(suspicions_);
  }
  if (suspicions.empty()) return;
  for (auto& peer : peers_) HearPeer(*peer);
  for (Suspicion& suspicion : suspicions) {
    if (abort_->is_set()) continue;
    const Departure* departure = departures_.Find(suspicion.cause.culprit);
    if (departure != nullptr) {
      AfterGoodbye(*departure, suspicion);
      continue;
    }
    if (NowMicros() - suspicion.since_us >= patience_us) {
      Judge(std::move(suspicion.cause));
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back(std::move(suspicion));
  }
}

const WatchedPeer* Watcher::Find(int rank) const {
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
  Missed(departure, stuck.empty() ? suspicion.cause.reason + "." : stuck);
}

// The links have told nothing better than this suspicion.
void Watcher::Judge(Cause cause) {
  const WatchedPeer* peer = cause.kind == CauseKind::kLink ? Find(cause.culprit) : nullptr;
  if (peer == nullptr) return Raise(cause);
  const bool dead = peer->open() ? peer->ProcessState() == "dead" : !peer->Lives();
  if (dead) return Raise(About(CauseKind::kDied, peer->rank(), Died(*peer)));
  // The same text at both ends.
  const std::string own = "rank " + std::to_string(options_.rank) + " (pid " + std::to_string(getpid()) + ")";
  const bool own_first = options_.rank < peer->rank();
  cause.other = std::max(options_.rank, peer->rank());
  cause.culprit = std::min(options_.rank, peer->rank());
  cause.reason = "the " + std::string(Name(cause.link)) + " link between " +
                 (own_first ? own : peer->Describe()) + " and " + (own_first ? peer->Describe() : own) +
                 " broke although both are alive (" + cause.reason +
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
        peer.Close();
        Raise(About(CauseKind::kCorrupt, peer.rank(),
                    "the watch link to " + peer.Describe() + " carries corrupt or forged frames."));
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

void Watcher::Raise(const Cause& cause) {
  if (abort_->is_set()) return;
  // First tell, then set: whoever sees the cause here closes links, and peers must not blame this rank for
  // that.
  WatchNews news = News(WatchKind::kAbort);
  news.cause = cause;
  Send(news);
  launcher_.Report(cause);
  if (abort_->Set(cause)) options_.on_abort();
}

}  // namespace hvd
