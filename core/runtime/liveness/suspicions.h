#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/liveness/cause.h"

namespace hvd {

// What may become the cause of a failure.
struct Suspicion {
  Cause cause;
  int64_t since_us;
  bool broken;  // this rank cannot go on
};

// Suspicions on their way from the engine to the watcher's thread. Thread safe.
class Suspicions {
 public:
  // Room for as many as there usually are, made while there is memory.
  explicit Suspicions(size_t peers) {
    const size_t room = kLinksOfPeer * peers + kSpare;
    open_.reserve(room);
    taken_.reserve(room);
  }

  void Add(Cause cause) { PutBack({std::move(cause), NowMicros(), false}); }

  // This rank cannot go on. Only the first one counts. Needs no memory.
  void AddFailure(Cause cause) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_.emplace(std::move(cause));
  }

  bool any() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_ || !open_.empty();
  }

  // For the watcher's thread: all of them, until the next call. Those that it cannot settle yet go
  // back.
  std::vector<Suspicion>& Take() {
    taken_.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_.swap(open_);
    if (failure_) taken_.push_back({*std::exchange(failure_, std::nullopt), NowMicros(), true});
    return taken_;
  }

  void PutBack(Suspicion suspicion) {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_.push_back(std::move(suspicion));
  }

 private:
  static constexpr size_t kLinksOfPeer = 2;  // of two roles: control and data
  static constexpr size_t kSpare = 8;

  mutable std::mutex mutex_;  // guards the two lines below
  std::vector<Suspicion> open_;
  std::optional<Cause> failure_;
  std::vector<Suspicion> taken_;  // the watcher thread's
};

}  // namespace hvd
