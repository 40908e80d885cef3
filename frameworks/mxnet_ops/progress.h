// How far the operations are that were handed to MXNet's engine.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

namespace hvd::mxnet {

// Each operation has a number, given in the order of the program. The engine starts them in another
// one, and some never: those whose inputs could not be computed.
class Progress {
 public:
  uint64_t Begin(uint32_t process_set) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsubmitted_.insert(++last_);
    unended_.emplace(last_, process_set);
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

  // How many of those up to `last` the core does not know after `seconds`, or as soon as it knows
  // all.
  uint64_t AwaitSubmitted(uint64_t last, double seconds) {
    return Await(seconds, [&] {
      return static_cast<uint64_t>(
          std::distance(unsubmitted_.begin(), unsubmitted_.upper_bound(last)));
    });
  }

  // The same of those that have not ended; of one process set, or of all (-1).
  uint64_t AwaitEnded(uint64_t last, int64_t process_set, double seconds) {
    return Await(seconds, [&] {
      return static_cast<uint64_t>(
          std::count_if(unended_.begin(), unended_.upper_bound(last), [&](const auto& operation) {
            return process_set < 0 || operation.second == static_cast<uint32_t>(process_set);
          }));
    });
  }

 private:
  template <typename Count>
  uint64_t Await(double seconds, Count&& missing) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return missing() == 0; });
    return missing();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;                     // guarded by mutex_, as are those that follow
  std::set<uint64_t> unsubmitted_;        // the core does not know them yet
  std::map<uint64_t, uint32_t> unended_;  // the process set of each
};

}  // namespace hvd::mxnet
