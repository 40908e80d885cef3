#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/descriptor.h"

namespace hvd::tcp {

// Says which of many sockets have changed, in one system call for all of them. A change is told
// once: whoever is told that a socket is readable goes on reading, now or later, until it would
// block.
//
// A child process that was forked shares the kernel's set of sockets with its parent, so nothing is
// taken out of the set when a socket is merely closed.
class Poller {
 public:
  struct Event {
    size_t link;    // as given to Add
    bool readable;  // or at its end, or broken
    bool writable;  // or broken
  };
  static constexpr int kMostEvents = 64;  // of one Take; the others are told by the next

  Status Open() {
    epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    return epoll_.valid() ? Status::Ok() : Status::Errno("epoll_create1");
  }
  void Close() { epoll_.Reset(); }

  // Tells from now on of data and of the end, and what there is already.
  Status Add(int socket, size_t link) const { return Control(kAdd, socket, link, false); }
  // Whether it tells of room to send too: at once if there is some.
  Status TellOfRoom(int socket, size_t link, bool room) const {
    return Control(kModify, socket, link, room);
  }
  Status Remove(int socket) const { return Control(kRemove, socket, 0, false); }

  // What has changed since the last call; never waits.
  Status Take(Event (&events)[kMostEvents], int* count) const {
    epoll_event raw[kMostEvents];
    *count = epoll_wait(epoll_.get(), raw, kMostEvents, 0);
    if (*count < 0) {
      *count = 0;
      return errno == EINTR ? Status::Ok() : Status::Errno("epoll_wait");
    }
    for (int i = 0; i < *count; ++i) {
      const bool broken = (raw[i].events & (EPOLLERR | EPOLLHUP)) != 0;
      events[i].link = raw[i].data.u64;
      events[i].readable = broken || (raw[i].events & (EPOLLIN | EPOLLRDHUP)) != 0;
      events[i].writable = broken || (raw[i].events & EPOLLOUT) != 0;
    }
    return Status::Ok();
  }

  int fd() const { return epoll_.get(); }  // readable while there is something to take

 private:
  enum Change : int { kAdd = EPOLL_CTL_ADD, kModify = EPOLL_CTL_MOD, kRemove = EPOLL_CTL_DEL };
  Status Control(Change change, int socket, size_t link, bool room) const {
    epoll_event event{};
    event.events = EPOLLET | EPOLLIN | EPOLLRDHUP | (room ? uint32_t{EPOLLOUT} : 0);
    event.data.u64 = link;
    return epoll_ctl(epoll_.get(), change, socket, &event) == 0 ? Status::Ok()
                                                                : Status::Errno("epoll_ctl");
  }

  Descriptor epoll_;
};

}  // namespace hvd::tcp
