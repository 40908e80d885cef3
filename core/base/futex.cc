#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace hvd {

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
