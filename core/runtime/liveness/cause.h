#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/link.h"
#include "base/rank.h"
#include "base/status.h"

namespace hvd {

// What kind of event ended a generation. The numbers travel to peers and to the launcher.
enum class CauseKind : uint8_t {
  kDied = 1,  // the culprit's process has ended without leaving the job
  kSilent,    // the culprit answers no heartbeat
  kLeft,      // the culprit has left the job in order, and others need it
  kLink,      // the connection between culprit and other broke, and both are alive
  kCorrupt,   // the culprit has sent what it cannot have meant to send
  kStall,     // an operation waits for the culprit, or for no single rank
  kFault,     // some rank cannot go on; the reason says which and why
};
constexpr uint8_t kCauseKinds = 7;

// Why a generation ended. A copy needs no memory.
struct Cause {
  CauseKind kind = CauseKind::kFault;
  GlobalRank culprit;                // nobody: no single one
  GlobalRank other;                  // kLink: the other end
  LinkRole link = LinkRole::kWatch;  // kLink
  SharedText reason;
};

inline Cause About(CauseKind kind, GlobalRank culprit, SharedText reason) {
  Cause cause;
  cause.kind = kind;
  cause.culprit = culprit;
  cause.reason = std::move(reason);
  return cause;
}

inline const SharedText kOutOfMemoryWithoutWords(
    "a rank ran out of memory, also for saying which and where");

// `rank` is this one, which has no memory left. Whoever may have to say so makes it in advance:
// afterwards there may be none for the whole text. `doing`: "submitted an operation".
inline Cause OutOfMemory(GlobalRank rank, const char* doing) noexcept {
  Cause cause;
  cause.culprit = rank;
  cause.reason = kOutOfMemoryWithoutWords;
  HasMemoryFor([&] {
    cause.reason =
        Name(rank) + " ran out of memory while it " + doing +
        ". Give it more (see the limit of its container and ulimit -v) or let it use less: "
        "smaller tensors, smaller batches, fewer workers.";
  });
  return cause;
}

// The cause of this generation's end: the first is kept; later ones never replace it. Nothing here
// needs memory.
class AbortCell {
 public:
  // True when this is the first cause.
  bool Set(Cause cause) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (set_.load(std::memory_order_relaxed)) return false;
    cause_ = std::move(cause);
    set_.store(true, std::memory_order_release);
    return true;
  }

  bool is_set() const { return set_.load(std::memory_order_acquire); }

  // Call only when is_set().
  const Cause& cause() const { return cause_; }
  Status status() const { return Status::Aborted(cause_.reason); }

 private:
  std::mutex mutex_;  // guards the writing of cause_
  std::atomic<bool> set_{false};
  Cause cause_;
};

}  // namespace hvd
