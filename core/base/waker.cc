#include "base/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace hvd {

Waker::Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ >= 0) return;
  const bool limited = errno == EMFILE || errno == ENFILE;
  const Status reason = Status::Errno("cannot make an event descriptor");
  status_ = {reason.code(),
             reason.message() + (limited ? ". Raise the limit of open files (ulimit -n)." : "")};
}

Waker::~Waker() {
  if (fd_ >= 0) close(fd_);
}

void Waker::Ring(int fd) {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, so the sleeper wakes anyway.
  [[maybe_unused]] ssize_t ignored = write(fd, &one, sizeof one);
}

void Waker::Drain() const {
  uint64_t count;
  [[maybe_unused]] ssize_t ignored = read(fd_, &count, sizeof count);
}

}  // namespace hvd
