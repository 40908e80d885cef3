#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/link.h"
#include "base/rank.h"
#include "base/shared_text.h"

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

// `rank` is this one, which has no memory left. Whoever may have to say so makes it in advance: afterwards
// there may be none for the whole text. `doing`: "submitted an operation".
Cause OutOfMemory(GlobalRank rank, const char* doing) noexcept;

}  // namespace hvd
