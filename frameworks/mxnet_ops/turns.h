// Operations of one name, of which the core takes one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace hvd::mxnet {

// A program may call an operation again, on another array, before the first is complete; nothing
// else makes the second wait. Turns are in the order of the program, which is the same on all
// ranks.
template <typename Operation>
class Turns {
 public:
  using Name = std::pair<uint32_t, std::string>;  // of a process set

  void Enter(const Name& name, Operation* operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[name].push_back({operation, false});
  }

  // Whether it is this one's turn; otherwise Leave tells when.
  bool Ready(const Name& name, const Operation* operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Place>& queue = queues_.at(name);
    for (Place& place : queue) {
      if (place.operation == operation) place.ready = true;
    }
    return queue.front().operation == operation;
  }

  // The one whose turn has come and that has been waiting for it; null if there is none. May be
  // called twice.
  Operation* Leave(const Name& name, const Operation* operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = queues_.find(name);
    if (found == queues_.end()) return nullptr;
    std::deque<Place>& queue = found->second;
    const bool had_turn = queue.front().operation == operation;
    for (auto place = queue.begin(); place != queue.end(); ++place) {
      if (place->operation != operation) continue;
      queue.erase(place);
      break;
    }
    if (!queue.empty()) return had_turn && queue.front().ready ? queue.front().operation : nullptr;
    queues_.erase(found);
    return nullptr;
  }

 private:
  struct Place {
    Operation* operation;
    bool ready;
  };

  std::mutex mutex_;
  std::map<Name, std::deque<Place>> queues_;  // guarded by mutex_
};

}  // namespace hvd::mxnet
