#pragma once

#include <cstdint>

#include "base/rank.h"
#include "base/status.h"
#include "transport/descriptor.h"

namespace hvd::tcp {

// Says which of many sockets have changed, in one system call for all of them. A change is told once: whoever
// is told that a socket is readable goes on reading, now or later, until it would block.
//
// A child process that was forked shares the kernel's set of sockets with its parent, so nothing is taken out
// of the set when a socket is merely closed.
class Poller {
 public:
  struct Event {
    GlobalRank peer;
    bool readable;  // or at its end, or broken
    bool writable;  // or broken
  };
  static constexpr int kMostEvents = 64;  // of one Take; the others are told by the next

  Status Open();
  void Close() { epoll_.Reset(); }

  // Tells from now on of data and of the end, and what there is already.
  Status Add(int socket, GlobalRank peer) const { return Control(kAdd, socket, peer, false); }
  // Whether it tells of room to send too: at once if there is some.
  Status TellOfRoom(int socket, GlobalRank peer, bool room) const {
    return Control(kModify, socket, peer, room);
  }
  Status Remove(int socket) const { return Control(kRemove, socket, {}, false); }

  // What has changed since the last call; never waits.
  Status Take(Event (&events)[kMostEvents], int* count) const;

  int fd() const { return epoll_.get(); }  // readable while there is something to take

 private:
  enum Change : uint8_t { kAdd, kModify, kRemove };
  Status Control(Change change, int socket, GlobalRank peer, bool room) const;

  Descriptor epoll_;
};

}  // namespace hvd::tcp
