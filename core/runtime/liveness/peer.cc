#include "runtime/liveness/peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

namespace hvd {

namespace {

constexpr size_t kMostQueued = 16 * kWatchFrameBytes;
// Beyond them: a heartbeat that was begun with room, an end of the generation and a goodbye.
constexpr size_t kRoom = kMostQueued + 3 * kWatchFrameBytes;
constexpr unsigned kExiting = 0x4;  // PF_EXITING

// Two columns of /proc/<pid>/stat; false when there is no such process.
bool ReadProcess(int32_t pid, char* state, unsigned* flags) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  if (pid <= 0 || !std::getline(file, stat)) return false;
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  return std::sscanf(stat.c_str() + name_end, ") %c %*d %*d %*d %*d %*d %u", state, flags) == 2;
}

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
  while (received_ < kWatchFrameBytes) {
    const ssize_t got =
        recv(fd_, in_.data() + received_, kWatchFrameBytes - received_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Heard::kNothing;
    if (got <= 0) return Heard::kEnd;
    received_ += static_cast<size_t>(got);
  }
  received_ = 0;
  const Status status = DecodeWatch({in_.data(), in_.size()}, &opener_, news);
  return status.ok() ? Heard::kNews : Heard::kCorrupt;
}

std::string WatchedPeer::Describe() const {
  return pid > 0 ? name_ + " (pid " + std::to_string(pid) + ")" : name_;
}

std::string WatchedPeer::ProcessState() const {
  char state = 0;
  unsigned flags = 0;
  if (home == 0 || home != own_home_ || !ReadProcess(pid, &state, &flags)) return "";
  if ((flags & kExiting) != 0) return "dead";
  switch (state) {
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "dead";
    case 'D':
      return "in uninterruptible sleep";
    default:
      return "alive";
  }
}

bool WatchedPeer::Lives() const {
  const std::string state = pid == getpid() ? "" : ProcessState();
  return !state.empty() && state != "dead";
}

}  // namespace hvd
