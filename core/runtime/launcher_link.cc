#include "runtime/launcher_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <string>
#include <string_view>

namespace hvd {

namespace {

// The format of horovod/bootstrap: a frame is its length, a MAC over its number and the payload, and the
// payload; a payload is a tag, a count, and fields with their lengths. All integers are big-endian.
constexpr char kVerdictTag = 4;
constexpr size_t kMostReason = 4096;

template <typename Integer>
std::string BigEndian(Integer value) {
  std::string bytes(sizeof value, '\0');
  for (size_t i = 0; i < sizeof value; ++i) {
    bytes[i] = static_cast<char>(value >> 8 * (sizeof value - 1 - i));
  }
  return bytes;
}

std::string Payload(const Cause& cause) {
  const std::string numbers[] = {std::to_string(static_cast<int>(cause.kind)), std::to_string(cause.culprit),
                                 std::to_string(cause.other), std::to_string(static_cast<int>(cause.link))};
  std::string payload = kVerdictTag + BigEndian(uint32_t{5});
  for (const std::string& number : numbers) {
    payload += BigEndian(static_cast<uint32_t>(number.size())) + number;
  }
  const std::string reason = cause.reason.substr(0, kMostReason);
  return payload + BigEndian(static_cast<uint32_t>(reason.size())) + reason;
}

}  // namespace

LauncherLink::LauncherLink(const Link& link, uint64_t frames)
    : fd_(link.fd), hmac_(link.send_key.data(), link.send_key.size()), frames_(frames) {}

void LauncherLink::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool LauncherLink::Ended() {
  char bytes[256];
  const ssize_t got = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return false;
  Close();
  return true;
}

void LauncherLink::Report(const Cause& cause) {
  if (fd_ < 0) return;
  const std::string payload = Payload(cause);
  const std::string number = BigEndian(frames_);
  const Digest mac = hmac_.Mac(number.data(), number.size(), payload.data(), payload.size());
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size()));
  frame.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  frame += payload;
  const ssize_t sent = send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // What follows half a frame would not open.
  if (sent == static_cast<ssize_t>(frame.size())) ++frames_;
}

}  // namespace hvd
