#include "transport/tcp/poller.h"

#include <sys/epoll.h>

#include <cerrno>

namespace hvd::tcp {

Status Poller::Open() {
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? Status::Ok() : Status::Errno("epoll_create1");
}

Status Poller::Control(Change change, int socket, GlobalRank peer, bool room) const {
  constexpr int kOperations[] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
  epoll_event event{};
  event.events = EPOLLET | EPOLLIN | EPOLLRDHUP | (room ? uint32_t{EPOLLOUT} : 0);
  event.data.fd = peer.value();
  if (epoll_ctl(epoll_.get(), kOperations[change], socket, &event) == 0) return Status::Ok();
  return Status::Errno("epoll_ctl");
}

Status Poller::Take(Event (&events)[kMostEvents], int* count) const {
  epoll_event raw[kMostEvents];
  *count = epoll_wait(epoll_.get(), raw, kMostEvents, 0);
  if (*count < 0) {
    *count = 0;
    return errno == EINTR ? Status::Ok() : Status::Errno("epoll_wait");
  }
  for (int i = 0; i < *count; ++i) {
    const bool broken = (raw[i].events & (EPOLLERR | EPOLLHUP)) != 0;
    events[i].peer = GlobalRank(raw[i].data.fd);
    events[i].readable = broken || (raw[i].events & (EPOLLIN | EPOLLRDHUP)) != 0;
    events[i].writable = broken || (raw[i].events & EPOLLOUT) != 0;
  }
  return Status::Ok();
}

}  // namespace hvd::tcp
