#include "runtime/liveness/peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hvd {

namespace {

constexpr size_t kMostQueued = 16 * kWatchFrameBytes;
// Beyond them: a heartbeat that was begun with room, an end of the generation and a goodbye.
constexpr size_t kRoom = kMostQueued + 3 * kWatchFrameBytes;

}  // namespace

WatchedPeer::WatchedPeer(const Link& link, Descriptor socket, std::string name, uint64_t home)
    : rank_(link.peer),
      name_(std::move(name)),
      own_home_(home),
      sealer_(link.send_key),
      opener_(link.recv_key) {
  out_.reserve(kRoom);
  fd_ = socket.Release();
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

WatchedPeer::~WatchedPeer() { Close(); }

void WatchedPeer::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Descriptor WatchedPeer::Release() { return Descriptor(std::exchange(fd_, -1)); }

void WatchedPeer::Send(const WatchNews& news) noexcept {
  if (!open()) return;
  Flush();  // it may read again
  // Sealing counts frames: one that is dropped must be dropped before it is sealed.
  const bool may_wait = news.kind == WatchKind::kHeartbeat || news.kind == WatchKind::kShowStacks;
  if (may_wait && out_.size() >= kMostQueued) return;
  if (out_.size() + kWatchFrameBytes > kRoom) return;
  const WatchFrame frame = EncodeWatch(news, &sealer_);
  out_.append(frame.data(), frame.size());
  Flush();
}

void WatchedPeer::Flush() {
  while (open() && !out_.empty()) {
    const ssize_t sent = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;  // the reading side finds out whether the link is lost
    out_.erase(0, static_cast<size_t>(sent));
  }
}

WatchedPeer::Heard WatchedPeer::Receive(WatchNews* news) {
  size_t wanted =
      received_ < kShortWatchFrameBytes ? kShortWatchFrameBytes : WatchFrameBytes(in_.data());
  while (received_ < wanted) {
    const ssize_t got = recv(fd_, in_.data() + received_, wanted - received_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Heard::kNothing;
    if (got <= 0) return Heard::kEnd;
    received_ += static_cast<size_t>(got);
    if (received_ >= kShortWatchFrameBytes) wanted = WatchFrameBytes(in_.data());
  }
  received_ = 0;
  const Status status = DecodeWatch({in_.data(), wanted}, &opener_, news);
  return status.ok() ? Heard::kNews : Heard::kCorrupt;
}

std::string WatchedPeer::Describe() const {
  return pid > 0 ? name_ + " (pid " + std::to_string(pid) + ")" : name_;
}

ProcessState WatchedPeer::State() const {
  return home == 0 || home != own_home_ ? ProcessState::kUnknown : StateOf(pid);
}

bool WatchedPeer::Lives() const {
  const ProcessState state = pid == getpid() ? ProcessState::kUnknown : State();
  return state != ProcessState::kUnknown && state != ProcessState::kDead;
}

}  // namespace hvd
