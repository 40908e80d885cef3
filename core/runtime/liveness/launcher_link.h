#pragma once

#include <cstdint>

#include "base/link.h"
#include "digest/sha256.h"
#include "runtime/liveness/cause.h"

namespace hvd {

// The connection to the launcher: its end means that the launcher is gone, and over it this rank
// says why its generation ended, so that the launcher's report names the cause and not whichever
// rank ended first.
class LauncherLink {
 public:
  // Owns the link's descriptor: a socket, over which `frames` went before, or a pidfd of a launcher
  // that takes no messages, which is readable when it has ended and refuses to receive; -1 = none.
  // `orphan_seconds` lie between SIGTERM and SIGKILL for a rank without its launcher.
  LauncherLink(const Link& link, uint64_t frames, double orphan_seconds = 2.0);
  ~LauncherLink() { Close(); }
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // Nothing travels here while all goes well: only the system can tell that the launcher's host is
  // gone. It takes `seconds` without an answer for that.
  void ProbeHost(double seconds);

  int fd() const { return fd_; }
  void Close();

  // Reads what has come. True: the launcher is gone; the link is closed then.
  bool Ended();

  // For when the descriptor is readable. Without its launcher a rank ends: it is sent SIGTERM here,
  // and if it is still there some seconds later, SIGKILL by EndOrphan.
  void Hear();
  void EndOrphan() const;
  bool gone() const { return gone_us_ != 0; }

  // Never waits: a launcher that does not read learns less.
  void Report(const Cause& cause) noexcept;

 private:
  int fd_;
  HmacSha256 hmac_;
  uint64_t frames_;
  const int64_t orphan_us_;
  int64_t gone_us_ = 0;  // since when; 0 = it is there
};

}  // namespace hvd
