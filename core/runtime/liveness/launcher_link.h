#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/link.h"
#include "digest/sha256.h"
#include "runtime/liveness/cause.h"

namespace hvd {

// The connection to the launcher: over it this rank says why its generation ended, so that the
// launcher's report names the cause and not whichever rank ended first. Its end within a host means
// that the launcher is gone. A network may break it, and then another one takes its place.
class LauncherLink {
 public:
  // Asks for another connection; false: nobody makes one.
  using Ask = std::function<bool()>;

  // Owns the link's descriptor: a socket, or a pidfd of a launcher that takes no messages, which is
  // readable when it has ended and refuses to receive; -1 = none. `orphan_seconds` lie between
  // SIGTERM and SIGKILL for a rank without its launcher.
  LauncherLink(const Link& link, double orphan_seconds = 2.0, Ask ask = nullptr);
  ~LauncherLink() { Close(); }
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // Nothing travels here while all goes well: only the system can tell that the launcher's host is
  // gone. It takes `seconds` without an answer for that.
  void ProbeHost(double seconds);

  int fd() const { return fd_; }
  void Close();

  // Reads what has come. True: the link has ended; it is closed then.
  bool Ended();

  // For when the descriptor is readable. Without its launcher a rank ends: it is sent SIGTERM here,
  // and if it is still there some seconds later, SIGKILL by EndOrphan.
  void Hear();
  void EndOrphan() const;
  bool gone() const { return gone_us_ != 0; }

  // From any thread, for a link that is lost: another one, which it owns, or (fd -1) that there is
  // none to be had. It goes on over it at the next call of UseRenewed.
  void Renew(const Link& link);
  void UseRenewed();

  // Never waits: a launcher that does not read learns less. Said again over another link.
  void Report(const Cause& cause) noexcept;

 private:
  void Use(const Link& link);
  void Drop();
  void Orphan();

  int fd_ = -1;
  bool may_break_ = false;  // without the end of the launcher
  HmacSha256 hmac_;
  uint64_t frames_ = 0;
  const int64_t orphan_us_;
  const Ask ask_;
  double probe_seconds_ = 0;
  std::optional<Cause> reported_;
  int64_t gone_us_ = 0;  // since when; 0 = it is there
  std::mutex mutex_;
  std::optional<Link> renewed_;  // guarded by mutex_, and the next
  bool closed_ = false;
};

}  // namespace hvd
