// How far the operations are that were handed to MXNet's engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <set>

namespace hvd::mxnet {

// Each operation has a number, given in the order of the program. The engine starts them in another one, and
// some never: those whose inputs could not be computed.
class Progress {
 public:
  uint64_t Begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsubmitted_.insert(++last_);
    unended_.insert(last_);
    return last_;
  }

  void Submitted(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsubmitted_.erase(number);
    changed_.notify_all();
  }

  void Ended(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsubmitted_.erase(number);
    unended_.erase(number);
    changed_.notify_all();
  }

  uint64_t last() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

  // How many of those up to `last` are missing after `seconds`, or as soon as none is.
  uint64_t Await(uint64_t last, bool ended, double seconds) {
    const std::set<uint64_t>& missing = ended ? unended_ : unsubmitted_;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&] { return missing.empty() || *missing.begin() > last; });
    return static_cast<uint64_t>(std::distance(missing.begin(), missing.upper_bound(last)));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;               // guarded by mutex_, as are those that follow
  std::set<uint64_t> unsubmitted_;  // the core does not know them yet
  std::set<uint64_t> unended_;
};

}  // namespace hvd::mxnet
