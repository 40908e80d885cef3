#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace hvd {

// Between who wants to see the stacks of this process and the thread that can show them. Requests
// that come while one is being answered are one.
class StacksRequest {
 public:
  void Ask(int64_t now_us) {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked_ = true;
    if (pending_since_us_ < 0) pending_since_us_ = now_us;
    changed_.notify_all();
  }

  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // Blocks until there is a request; the next call says that it is answered. False: ended.
  // `signal`: makes this process show its stacks although that thread cannot; 0 = none does.
  bool Await(int signal) {
    std::unique_lock<std::mutex> lock(mutex_);
    has_listener_ = true;
    signal_ = signal;
    if (!asked_) pending_since_us_ = -1;
    changed_.wait(lock, [this] { return asked_ || ended_; });
    asked_ = false;
    return !ended_;
  }

  // Whether a request has been unanswered for so long; once for each. `signal`: see Await.
  bool TakeOverdue(int64_t now_us, int64_t patience_us, int* signal) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_listener_ || ended_ || pending_since_us_ < 0 ||
        now_us - pending_since_us_ < patience_us)
      return false;
    pending_since_us_ = -1;
    *signal = signal_;
    return true;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool asked_ = false;
  bool ended_ = false;
  bool has_listener_ = false;
  int signal_ = 0;
  int64_t pending_since_us_ = -1;  // -1: no request, or it is answered or overdue
};

}  // namespace hvd
