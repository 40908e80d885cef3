#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

// The two ways to sleep until something happens.

namespace hvd {

// The doorbell of one rank: an eventfd, so that one poll sleeps on shared memory, sockets and local
// submissions alike. Peers on the host hold a duplicate and ring it only when the rank has
// armed itself, so a ring costs a system call only when somebody sleeps.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Why there is no descriptor; whoever starts something that sleeps on a Waker checks it first.
  const Status& status() const { return status_; }
  int fd() const { return fd_; }
  void Ring() const { Ring(fd_); }
  void Drain() const;
  static void Ring(int fd);

 private:
  int fd_;
  Status status_;
};

enum class FutexWait { kWoken, kTimeout, kInterrupted };

// Sleeps while word == expected. kWoken also when it was not equal to begin with. timeout_us < 0 =
// no limit. For threads of one process; returns on signals, so that Python can run its handlers.
FutexWait WaitOnFutex(const std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_us);
void WakeFutex(const std::atomic<uint32_t>& word);  // everybody

}  // namespace hvd
