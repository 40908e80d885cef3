#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "runtime/liveness/cause.h"

namespace hvd {

// Why a generation ended. The first cause is kept; later ones never replace it. Nothing here needs memory.
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
