#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

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
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace hvd
