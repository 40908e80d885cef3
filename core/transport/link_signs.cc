#include "transport/link_signs.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

namespace hvd {

namespace {

// A firewall forgets after minutes; probes that are not answered are told of, long before the
// system gives up.
constexpr double kIdleTimeouts = 2.5;
constexpr double kPausesInTimeout = 3;
constexpr int kProbes = 30;
constexpr double kMostSeconds = 32767;  // that the system takes

// Options of Linux that headers of older systems lack.
constexpr int kEvenPauses = 16;      // TCP_THIN_LINEAR_TIMEOUTS
constexpr int kLongestPauseMs = 44;  // TCP_RTO_MAX_MS

// The beginning of what the kernel gives as TCP_INFO since 4.2; headers of older systems have less.
struct TcpInfo {
  uint8_t state, congestion, retransmits, probes, backoff, options, scales, limits;
  uint32_t rto, ato, send_mss, receive_mss;
  uint32_t unacknowledged, sacked, lost, retransmitted, forward;
  uint32_t ages[4];
  uint32_t pmtu, receive_threshold, round_trip_us, round_trip_variance, send_threshold;
  uint32_t window, advertised_mss, reordering, receive_round_trip, receive_space, all_retransmits;
  uint64_t pacing, most_pacing, bytes_acknowledged, bytes_received;
  uint32_t segments_out, segments_in;
};
static_assert(sizeof(TcpInfo) == 144, "as the kernel has it");

std::optional<TcpInfo> Ask(int socket) {
  TcpInfo info{};
  socklen_t bytes = sizeof info;
  const bool told = getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
  return told && bytes >= sizeof info ? std::optional<TcpInfo>(info) : std::nullopt;
}

// Either sent and not acknowledged, or a probe that is not answered: of a connection that is idle,
// or whose peer has no room.
bool Owes(const TcpInfo& info) { return info.unacknowledged > 0 || info.probes > 0; }

void KeepAlive(int socket, double timeout_seconds) {
  const auto set = [socket](int level, int option, double value) {
    const int whole = static_cast<int>(std::clamp(value, 1.0, kMostSeconds));
    setsockopt(socket, level, option, &whole, sizeof whole);
  };
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleTimeouts * timeout_seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, timeout_seconds / kPausesInTimeout);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

// A full queue on the way may lose a sign of life several times, and the system waits twice as long
// each time before it sends it again. At most a second, where it can be told to (Linux 6.15);
// else the first six times not longer, which it does for those that send little and whose control
// of congestion goes by losses, as BBR does not.
void SendAgainSoon(int socket) {
  constexpr char kByLosses[] = "reno";  // every system has it
  const int most_ms = 1000;             // not less: it is the least that may be asked for
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, kLongestPauseMs, &most_ms, sizeof most_ms);
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kByLosses, sizeof kByLosses - 1);
  setsockopt(socket, IPPROTO_TCP, kEvenPauses, &on, sizeof on);
}

}  // namespace

void LinkSigns::Add(int socket, GlobalRank peer, LinkRole role) {
  if (!Ask(socket)) return;
  KeepAlive(socket, timeout_seconds_);
  if (role != LinkRole::kData) SendAgainSoon(socket);
  const std::lock_guard<std::mutex> lock(mutex_);
  links_.push_back({socket, peer, role});
}

void LinkSigns::Remove(int socket) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_it = [socket](const Watched& link) { return link.socket == socket; };
  links_.erase(std::remove_if(links_.begin(), links_.end(), is_it), links_.end());
}

std::vector<LinkSign> LinkSigns::Look(int64_t now_us, bool held_up) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LinkSign> signs;
  signs.reserve(links_.size());
  for (Watched& link : links_) {
    const std::optional<TcpInfo> info = Ask(link.socket);
    if (!info) continue;
    // Where bytes are lost, others of the peer may still come, and so may what is sent after them.
    const bool answered = info->unacknowledged > 0 ? info->bytes_acknowledged != link.acknowledged
                                                   : info->segments_in != link.segments;
    if (!Owes(*info)) {
      link.owed_since_us = -1;
    } else if (answered || held_up || link.owed_since_us < 0) {
      link.owed_since_us = now_us;
    }
    const bool arrived = info->bytes_received != link.received;
    signs.push_back({link.peer, link.role, arrived,
                     link.owed_since_us < 0 ? 0 : now_us - link.owed_since_us,
                     int64_t{info->round_trip_us}});
    link.received = info->bytes_received;
    link.acknowledged = info->bytes_acknowledged;
    link.segments = info->segments_in;
  }
  return signs;
}

}  // namespace hvd
