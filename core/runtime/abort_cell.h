#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/status.h"

namespace hvd {

// Why a generation ended. The first cause is kept; later ones never replace it.
class AbortCell {
 public:
  // True when this is the first cause.
  bool Set(int culprit, std::string reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (set_.load(std::memory_order_relaxed)) return false;
    culprit_ = culprit;
    reason_ = std::move(reason);
    set_.store(true, std::memory_order_release);
    return true;
  }

  bool is_set() const { return set_.load(std::memory_order_acquire); }

  // Call only when is_set().
  int culprit() const { return culprit_; }
  const std::string& reason() const { return reason_; }
  Status status() const { return Status::Aborted(reason_); }

 private:
  std::mutex mutex_;  // guards the writing of culprit_ and reason_
  std::atomic<bool> set_{false};
  int culprit_ = -1;
  std::string reason_;
};

}  // namespace hvd
