#include "transport/descriptor.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace hvd {

namespace {

constexpr size_t kDropBytes = 64 << 10;
constexpr int kMostDrops = 64;  // at one look: a peer that never stops sending holds up nobody
constexpr int64_t kLookAgainUs = 200;  // an acknowledgement wakes nobody

// Bytes that the peer's kernel does not have yet. Over AF_UNIX a byte that is sent has arrived.
int Unacknowledged(int socket) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  int bytes = 0;
  const bool tcp = getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
                   protocol == IPPROTO_TCP;
  return tcp && ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// False when the connection is broken: nothing more arrives.
bool DropUnread(int socket) {
  char bytes[kDropBytes];
  ssize_t got = 1;
  for (int i = 0; got > 0 && i < kMostDrops; ++i)
    got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
  return got >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// Of a stream that was ended, the end counts as a byte. It need not be acknowledged.
bool Delivered(const Descriptor& socket) {
  return !DropUnread(socket.get()) || Unacknowledged(socket.get()) <= 1;
}

void SleepMicros(int64_t us) {
  const timespec pause{static_cast<time_t>(us / 1000000), static_cast<long>(us % 1000000 * 1000)};
  nanosleep(&pause, nullptr);
}

}  // namespace

void CloseDelivered(std::vector<Descriptor> sockets, int64_t limit_us) {
  const int64_t deadline = NowMicros() + limit_us;
  for (const Descriptor& socket : sockets) {
    if (socket.valid()) shutdown(socket.get(), SHUT_WR);
  }
  const auto gone = [](const Descriptor& socket) { return !socket.valid() || Delivered(socket); };
  for (;;) {
    sockets.erase(std::remove_if(sockets.begin(), sockets.end(), gone), sockets.end());
    const int64_t left = deadline - NowMicros();
    if (sockets.empty() || left <= 0) return;
    SleepMicros(std::min(left, kLookAgainUs));
  }
}

}  // namespace hvd
