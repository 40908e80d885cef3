#pragma once

#include <cstddef>

#include "base/status.h"
#include "transport/window.h"

namespace hvd {

// Cores that this process may use: affinity and cgroup quota, not the core count.
int UsableCores();

// Those that the ranks of a host may use together: the union of their affinities (ranks pinned to a
// core each have a core each), limited by the cgroup's quota. Waits for nobody: who has told its
// own may have left by the time that another counts.
class HostCores {
 public:
  // What it takes of the window that the ranks share.
  static size_t Bytes();

  // This rank's. The window outlives this.
  Status Tell(Window* window);

  // Of those that have told theirs, and of this rank: of all once they have made anything together
  // since.
  int Count() const;

 private:
  Window* window_ = nullptr;  // null: this rank is alone
  SegmentId reports_ = 0;
};

}  // namespace hvd
