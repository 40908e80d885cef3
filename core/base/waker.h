#pragma once

#include "base/status.h"

namespace hvd {

// The doorbell of one rank: an eventfd, so that one epoll_wait sleeps on shared memory, sockets and
// local submissions alike. Peers on the host hold a duplicate and ring it only when the rank has
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

}  // namespace hvd
