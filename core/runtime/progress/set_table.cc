#include "runtime/progress/set_table.h"

#include <algorithm>

namespace hvd {

std::unique_ptr<ProcessSet> SetTable::Remove(uint32_t id) {
  const auto found = sets_.find(id);
  if (found == sets_.end()) return nullptr;
  std::unique_ptr<ProcessSet> removed = std::move(found->second);
  sets_.erase(found);
  active_.erase(std::remove(active_.begin(), active_.end(), removed.get()), active_.end());
  removed->active = false;
  return removed;
}

void SetTable::ActivateRelays() {
  for (const auto& [id, set] : sets_) {
    if (set->relays()) Activate(set.get());
  }
}

// Nobody rings this rank for what is idle.
void SetTable::Retire() {
  const auto idle = [](ProcessSet* set) {
    if (set->busy() || (set->moved && set->relays())) return false;
    set->active = false;
    if (set->window() != nullptr) set->window()->Arm(false);
    return true;
  };
  active_.erase(std::remove_if(active_.begin(), active_.end(), idle), active_.end());
}

}  // namespace hvd
