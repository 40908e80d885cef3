#include "base/waker.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

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

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex word is a plain word");

FutexWait WaitOnFutex(const std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_us) {
  const timespec timeout{static_cast<time_t>(timeout_us / 1000000),
                         static_cast<long>(timeout_us % 1000000 * 1000)};
  const timespec* limit = timeout_us < 0 ? nullptr : &timeout;
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, limit, nullptr, 0);
  if (result == 0 || errno == EAGAIN) return FutexWait::kWoken;
  return errno == ETIMEDOUT ? FutexWait::kTimeout : FutexWait::kInterrupted;
}

void WakeFutex(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace hvd
