#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/link.h"

namespace hvd {

// Owns one file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Reset(); }

  // A duplicate of somebody else's descriptor, so that neither closes it under the other.
  static Descriptor Duplicate(int fd) { return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // the caller's from now on
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// The sockets of links, owned from here on, also when there is no memory for that.
inline std::vector<Descriptor> Adopt(const std::vector<Link>& links) {
  std::vector<Descriptor> sockets;
  try {
    sockets.reserve(links.size());
  } catch (const std::bad_alloc&) {
    for (const Link& link : links) close(link.fd);
    throw;
  }
  for (const Link& link : links) sockets.emplace_back(link.fd);
  return sockets;
}

// Closes connected stream sockets so that what was sent on them arrives. A socket that is closed
// while bytes of its peer lie unread resets the connection, and then whatever is still under way is
// lost. So each stream is ended first, what the peer sends is read and dropped, and the socket is
// closed when the peer's kernel has everything. After `limit_us` they are closed in any case.
void CloseDelivered(std::vector<Descriptor> sockets, int64_t limit_us);

}  // namespace hvd
