#pragma once

#include <condition_variable>
#include <mutex>

namespace hvd {

// Between who wants to see the stacks of this process and the thread that can show them. Requests that come
// while one is being answered are one.
class StacksRequest {
 public:
  void Ask() {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked_ = true;
    changed_.notify_all();
  }

  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // Blocks. False: ended.
  bool Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return asked_ || ended_; });
    asked_ = false;
    return !ended_;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool asked_ = false;
  bool ended_ = false;
};

}  // namespace hvd
