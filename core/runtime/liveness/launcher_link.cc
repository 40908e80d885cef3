#include "runtime/liveness/launcher_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "settings/log.h"

namespace hvd {

namespace {

// The format of horovod/bootstrap: a frame is its length, a MAC over its number and the payload,
// and the payload; a payload is a tag, a count, and fields with their lengths. All integers are
// big-endian.
constexpr char kVerdictTag = 4;
constexpr size_t kMostReason = 4096;
constexpr size_t kMostPayload = kMostReason + 128;

constexpr int kProbes = 5;
constexpr double kMostPause = 32767;  // that the system takes

// Grows up to its size, without memory of its own: the launcher is told also when there is none
// left.
class Bytes {
 public:
  void Add(std::string_view bytes) noexcept {
    const size_t fits = std::min(bytes.size(), sizeof bytes_ - size_);
    std::memcpy(bytes_ + size_, bytes.data(), fits);
    size_ += fits;
  }
  void AddNumber(uint64_t value, size_t bytes) noexcept {
    while (bytes-- > 0) {
      const char byte = static_cast<char>(value >> 8 * bytes);
      Add({&byte, 1});
    }
  }
  void AddField(std::string_view field) noexcept {
    AddNumber(field.size(), sizeof(uint32_t));
    Add(field);
  }
  void AddDecimal(int value) noexcept {
    char text[16];
    AddField({text, static_cast<size_t>(std::snprintf(text, sizeof text, "%d", value))});
  }

  const char* data() const noexcept { return bytes_; }
  size_t size() const noexcept { return size_; }
  std::string_view view() const noexcept { return {bytes_, size_}; }

 private:
  char bytes_[kMostPayload + sizeof(uint32_t) + sizeof(Digest)];
  size_t size_ = 0;
};

Bytes Payload(const Cause& cause) noexcept {
  Bytes payload;
  payload.AddNumber(kVerdictTag, 1);
  payload.AddNumber(5, sizeof(uint32_t));
  payload.AddDecimal(static_cast<int>(cause.kind));
  payload.AddDecimal(cause.culprit.value());
  payload.AddDecimal(cause.other.value());
  payload.AddDecimal(static_cast<int>(cause.link));
  payload.AddField(std::string_view(cause.reason.str()).substr(0, kMostReason));
  return payload;
}

bool IsOverNetwork(int fd) {
  int domain = AF_UNIX;
  socklen_t bytes = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX;
}

}  // namespace

LauncherLink::LauncherLink(const Link& link, double orphan_seconds, Ask ask)
    : hmac_(link.send_key.data(), link.send_key.size()),
      orphan_us_(static_cast<int64_t>(orphan_seconds * 1e6)),
      ask_(std::move(ask)) {
  Use(link);
}

void LauncherLink::Use(const Link& link) {
  fd_ = link.fd;
  may_break_ = IsOverNetwork(fd_);
  hmac_ = HmacSha256(link.send_key.data(), link.send_key.size());
  frames_ = link.sealed;
}

// A Unix socket refuses the options, and needs none.
void LauncherLink::ProbeHost(double seconds) {
  probe_seconds_ = seconds;
  const auto set = [this](int level, int option, int value) {
    setsockopt(fd_, level, option, &value, sizeof value);
  };
  seconds = std::min(seconds, kMostPause * (kProbes + 1));
  const int pause = std::max(1, static_cast<int>(seconds / (kProbes + 1)));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(seconds * 1000));
}

void LauncherLink::Close() {
  Drop();
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (renewed_ && renewed_->fd >= 0) close(renewed_->fd);
  renewed_.reset();
}

void LauncherLink::Drop() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool LauncherLink::Ended() {
  char bytes[256];
  const ssize_t got = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return false;
  Drop();
  return true;
}

void LauncherLink::Hear() {
  if (!Ended()) return;
  if (!may_break_ || !ask_ || !ask_()) return Orphan();
  Log(LogLevel::kWarning, "the connection to the launcher is broken: this rank makes another one");
}

void LauncherLink::Renew(const Link& link) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || renewed_) {
    if (link.fd >= 0) close(link.fd);
  } else {
    renewed_ = link;
  }
}

void LauncherLink::UseRenewed() {
  std::optional<Link> link;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    link.swap(renewed_);
  }
  if (!link || gone() || (fd_ >= 0 && link->fd < 0)) return;
  if (link->fd < 0) return Orphan();
  Drop();
  Use(*link);
  ProbeHost(probe_seconds_);
  Log(LogLevel::kInfo, "there is another connection to the launcher");
  if (reported_) Report(*reported_);
}

void LauncherLink::Orphan() {
  gone_us_ = NowMicros();
  Log(LogLevel::kError, "the launcher is gone: this rank ends");
  kill(getpid(), SIGTERM);
}

void LauncherLink::EndOrphan() const {
  if (!gone() || NowMicros() - gone_us_ <= orphan_us_) return;
  kill(getpid(), SIGKILL);
  _exit(128 + SIGKILL);  // the first process of a container ignores its own signals
}

void LauncherLink::Report(const Cause& cause) noexcept {
  reported_ = cause;
  if (fd_ < 0) return;
  const Bytes payload = Payload(cause);
  Bytes number;
  number.AddNumber(frames_, sizeof frames_);
  const Digest mac = hmac_.Mac(number.data(), number.size(), payload.data(), payload.size());
  Bytes frame;
  frame.AddNumber(payload.size(), sizeof(uint32_t));
  frame.Add({reinterpret_cast<const char*>(mac.data()), mac.size()});
  frame.Add(payload.view());
  const ssize_t sent = send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // What follows half a frame would not open.
  if (sent == static_cast<ssize_t>(frame.size())) ++frames_;
}

}  // namespace hvd
