#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/seal.h"
#include "runtime/watch_frame.h"
#include "transport/descriptor.h"

namespace hvd {

// How a peer left.
struct Departure {
  int rank = -1;
  int64_t since_us = 0;
  bool abandoned = false;  // with operations in flight
};

// One watch link: frames out without waiting, frames in as they come, and what is known of the peer.
class WatchedPeer {
 public:
  enum class Heard { kNothing, kNews, kEnd, kCorrupt };

  explicit WatchedPeer(const Link& link);
  ~WatchedPeer();
  WatchedPeer(const WatchedPeer&) = delete;
  WatchedPeer& operator=(const WatchedPeer&) = delete;

  // Queues and sends what the socket takes; a peer that does not read gets no more than a few frames queued.
  void Send(const WatchNews& news);
  void Flush();

  // The next frame, if one is complete.
  Heard Receive(WatchNews* news);

  int fd() const { return fd_; }
  int rank() const { return rank_; }
  bool open() const { return fd_ >= 0; }
  bool flushed() const { return !open() || out_.empty(); }
  void Close();
  Descriptor Release();  // closed here, the caller's from now on

  int64_t heard_us = 0;   // when it last said something
  bool departed = false;  // it said goodbye
  Departure departure;    // when departed
  bool warned = false;    // its silence was logged
  int32_t pid = 0;
  int64_t blocked_us = 0;  // see Blocked; as of heard_us

  // "rank 1 (pid 4711)"
  std::string Describe() const;
  // What the kernel says of the process: "stopped", "alive", "dead", ... or empty when it is not known.
  std::string ProcessState() const;
  // Whether the process is known to run on. One that ends closes its connections at the very end.
  bool Lives() const;

 private:
  int fd_;
  int rank_;
  Sealer sealer_;
  Opener opener_;
  std::string out_;
  std::string in_;
};

}  // namespace hvd
