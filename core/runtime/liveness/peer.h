#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/rank.h"
#include "runtime/liveness/frame.h"
#include "runtime/liveness/process_state.h"
#include "transport/descriptor.h"

namespace hvd {

// One watch link: frames out without waiting, frames in as they come, and what is known of the
// peer.
class WatchedPeer {
 public:
  enum class Heard { kNothing, kNews, kEnd, kCorrupt };

  // `socket`: that of the link. `name`: of the peer, for people. `home`: this process's
  // HostIdentity.
  WatchedPeer(const Link& link, Descriptor socket, std::string name, uint64_t home);
  ~WatchedPeer();
  WatchedPeer(const WatchedPeer&) = delete;
  WatchedPeer& operator=(const WatchedPeer&) = delete;

  // Queues and sends what the socket takes; a peer that does not read gets no more than a few
  // frames queued, for which there is room from the start.
  void Send(const WatchNews& news) noexcept;
  void Flush();

  // The next frame, if one is complete.
  Heard Receive(WatchNews* news);

  int fd() const { return fd_; }
  GlobalRank rank() const { return rank_; }
  bool open() const { return fd_ >= 0; }
  bool flushed() const { return !open() || out_.empty(); }
  void Close();
  Descriptor Release();  // closed here, the caller's from now on

  int64_t heard_us = 0;   // when it last said something
  bool departed = false;  // it said goodbye
  bool warned = false;    // its silence was logged
  bool awaited = false;   // and that it is stopped
  // For how long its host has acknowledged nothing on one of its links; -1: nobody knows.
  int64_t owed_us = -1;
  int32_t pid = 0;
  uint64_t home = 0;    // where its pid means something
  BlockedNews blocked;  // as of heard_us

  // "rank 1 on node2 (pid 4711)"
  std::string Describe() const;
  // Unknown of one on another host or in another process namespace, where its pid is somebody
  // else's.
  ProcessState State() const;
  // Whether the process is known to run on. One that ends closes its connections at the very end.
  bool Lives() const;

 private:
  int fd_ = -1;
  GlobalRank rank_;
  std::string name_;
  uint64_t own_home_;
  Sealer sealer_;
  Opener opener_;
  std::string out_;
  WatchFrame in_;
  size_t received_ = 0;  // of in_
};

}  // namespace hvd
