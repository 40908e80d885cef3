#include "runtime/liveness/cause.h"

#include <new>

namespace hvd {

namespace {
const SharedText kNoMemory("a rank ran out of memory, also for saying which and where");
}  // namespace

Cause OutOfMemory(GlobalRank rank, const char* doing) noexcept {
  Cause cause;
  cause.culprit = rank;
  try {
    cause.reason = Name(rank) + " ran out of memory while it " + doing +
                   ". Give it more (see the limit of its container and ulimit -v) or let it use less: "
                   "smaller tensors, smaller batches, fewer workers.";
  } catch (const std::bad_alloc&) {
    cause.reason = kNoMemory;
  }
  return cause;
}

}  // namespace hvd
