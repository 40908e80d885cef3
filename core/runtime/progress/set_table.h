#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "runtime/progress/process_set.h"

namespace hvd {

// The process sets of one rank, and which of them are active: those on which it has something in
// flight or unsent. A round looks at these alone, so that a set costs nothing while it is idle,
// however many there are. Nothing is missed: whatever the others do in a set waits for an operation
// of this rank, and when it submits one it takes in all that has arrived. Belongs to the holder of
// the progress lock.
class SetTable {
 public:
  using Sets = std::unordered_map<uint32_t, std::unique_ptr<ProcessSet>>;

  void Add(std::unique_ptr<ProcessSet> set) {
    const uint32_t id = set->id();
    active_.reserve(sets_.size() + 1);
    sets_.emplace(id, std::move(set));
  }

  // Null where there is none.
  std::unique_ptr<ProcessSet> Remove(uint32_t id);
  ProcessSet* Find(uint32_t id) const {
    const auto found = sets_.find(id);
    return found == sets_.end() ? nullptr : found->second.get();
  }
  const Sets& all() const { return sets_; }
  void Clear() {
    active_.clear();
    sets_.clear();
  }

  const std::vector<ProcessSet*>& active() const { return active_; }
  void Activate(ProcessSet* set) {
    if (!std::exchange(set->active, true)) active_.push_back(set);
  }
  // Those that others need though this rank does nothing there: what they tell it, it passes on, or
  // reports.
  void ActivateRelays();
  // Those that are idle are active no more. Where others need this rank it takes in all that they
  // have told it, a message in a round, before it looks away.
  void Retire();

 private:
  Sets sets_;
  std::vector<ProcessSet*> active_;  // has room for all
};

}  // namespace hvd
