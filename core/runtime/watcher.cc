#include "runtime/watcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/watched_peer.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kOrphanGrace = 2 * kSecond;  // between SIGTERM and SIGKILL when the launcher is gone
constexpr int kDepartedRoundMs = 250;
// A process that is killed closes its links one after the other, and may be held up in between.
constexpr int64_t kHearOutUs = 150000;
constexpr int kSuspicionRoundMs = 10;

WatchNews News(WatchKind kind, uint64_t generation) {
  WatchNews news;
  news.kind = kind;
  news.generation = generation;
  news.pid = getpid();
  return news;
}

std::string Seconds(int64_t us) {
  std::string text = std::to_string(us / kSecond) + "." + std::to_string(us % kSecond / 100000);
  return text + " s";
}

}  // namespace

Watcher::Watcher(WatcherOptions options, AbortCell* abort) : options_(std::move(options)), abort_(abort) {
  for (const Link& link : options_.links) peers_.push_back(std::make_unique<WatchedPeer>(link));
}

Watcher::~Watcher() { Stop(); }

void Watcher::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Watcher::Suspect(int peer, std::string reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back({peer, std::move(reason), NowMicros()});
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
  if (options_.launcher_fd >= 0) close(options_.launcher_fd);
  options_.launcher_fd = -1;
}

void Watcher::Run() {
  const int64_t period = static_cast<int64_t>(options_.heartbeat_seconds * kSecond);
  int64_t next_beat = 0;
  last_round_us_ = NowMicros();
  for (auto& peer : peers_) peer->heard_us = last_round_us_;
  while (!stopping_.load()) {
    const int64_t now = NowMicros();
    if (now >= next_beat) {
      Beat();
      CheckSilence(now);
      next_beat = now + period;
    }
    CheckDeparted();
    const int64_t wait_ms = (next_beat - now) / 1000 + 1;
    Wait(static_cast<int>(std::min<int64_t>(wait_ms, LongestRoundMs())));
  }
  HearSuspicions(0);
  WatchNews goodbye = News(WatchKind::kGoodbye, options_.generation);
  goodbye.abandons = abandons_;
  for (auto& peer : peers_) peer->Send(goodbye);
}

int Watcher::LongestRoundMs() {
  const bool departed = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return p->departed; });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!suspicions_.empty()) return kSuspicionRoundMs;
  return departed || launcher_gone_us_ != 0 ? kDepartedRoundMs : std::numeric_limits<int>::max();
}

void Watcher::Wait(int timeout_ms) {
  std::vector<pollfd> fds;
  for (const auto& peer : peers_) fds.push_back({peer->fd(), POLLIN, 0});  // a closed one is -1: ignored
  fds.push_back({waker_.fd(), POLLIN, 0});
  fds.push_back({options_.launcher_fd, POLLIN, 0});
  if (poll(fds.data(), fds.size(), timeout_ms) < 0) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (fds[i].revents != 0) HearPeer(*peers_[i]);
  }
  if (fds[peers_.size()].revents != 0) {
    waker_.Drain();
    if (asks_for_stacks_.exchange(false)) {
      for (auto& peer : peers_) peer->Send(News(WatchKind::kShowStacks, options_.generation));
    }
  }
  HearSuspicions(kHearOutUs);
  if (fds.back().revents != 0) LauncherGone();
  if (launcher_gone_us_ != 0 && NowMicros() - launcher_gone_us_ > kOrphanGrace) kill(getpid(), SIGKILL);
}

void Watcher::Beat() {
  WatchNews news = News(WatchKind::kHeartbeat, options_.generation);
  news.blocked_us = options_.blocked_us();
  int64_t least = news.blocked_us;
  for (auto& peer : peers_) {
    peer->Send(news);
    if (!peer->departed) least = std::min(least, peer->blocked_us);
  }
  everybody_blocked_us_.store(least);
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
      Raise(peer->rank(),
            text + ". Look at what that process does (for example with py-spy dump), then restart the job.");
    } else if (silence > timeout / 2 && !peer->warned) {
      peer->warned = true;
      Log(LogLevel::kWarning, text);
    }
  }
}

void Watcher::CheckDeparted() {
  for (auto& peer : peers_) {
    if (!peer->departed || abort_->is_set()) continue;
    const std::string stuck = options_.stuck_without(peer->departure);
    if (stuck.empty()) continue;
    Raise(peer->rank(),
          peer->Describe() + " has left the job (its program ended, failed or called shutdown()), but " +
              stuck +
              " Every rank must take part in every operation; look for a rank that leaves its loop early.");
  }
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
    // Who has said goodbye may close its links; CheckDeparted knows whether it is missed.
    if (abort_->is_set() || Departed(suspicion.peer)) continue;
    if (NowMicros() - suspicion.since_us >= patience_us) {
      Raise(suspicion.peer, suspicion.reason);
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    suspicions_.push_back(std::move(suspicion));
  }
}

bool Watcher::Departed(int rank) const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [rank](const auto& p) { return p->rank() == rank && p->departed; });
}

void Watcher::HearPeer(WatchedPeer& peer) {
  WatchNews news;
  while (peer.open()) {
    switch (peer.Receive(&news)) {
      case WatchedPeer::Heard::kNothing:
        return;
      case WatchedPeer::Heard::kCorrupt:
        peer.Close();
        Raise(peer.rank(), "the watch link to " + peer.Describe() + " carries corrupt or forged frames.");
        return;
      case WatchedPeer::Heard::kEnd:
        peer.Close();
        if (!peer.departed)
          Raise(peer.rank(), peer.Describe() + " died: its connection ended without a goodbye.");
        return;
      case WatchedPeer::Heard::kNews:
        break;
    }
    if (news.generation != options_.generation) continue;
    peer.heard_us = NowMicros();
    peer.warned = false;
    peer.pid = news.pid;
    if (news.kind == WatchKind::kHeartbeat) peer.blocked_us = news.blocked_us;
    if (news.kind == WatchKind::kShowStacks) options_.on_show_stacks();
    if (news.kind == WatchKind::kGoodbye) {
      peer.departed = true;
      peer.departure = {peer.rank(), peer.heard_us, news.abandons};
    }
    if (news.kind == WatchKind::kAbort) Raise(news.culprit, news.reason);
  }
}

void Watcher::LauncherGone() {
  char bytes[256];
  const ssize_t got = recv(options_.launcher_fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
  close(options_.launcher_fd);
  options_.launcher_fd = -1;
  launcher_gone_us_ = NowMicros();
  Log(LogLevel::kError, "the launcher is gone: this rank ends");
  kill(getpid(), SIGTERM);
}

void Watcher::Raise(int culprit, const std::string& reason) {
  if (abort_->is_set()) return;
  // First tell, then set: whoever sees the cause here closes links, and peers must not blame this rank for
  // that.
  WatchNews news = News(WatchKind::kAbort, options_.generation);
  news.culprit = culprit;
  news.reason = reason;
  for (auto& peer : peers_) peer->Send(news);
  if (abort_->Set(culprit, reason)) options_.on_abort();
}

}  // namespace hvd
