#include "runtime/control/follower.h"

#include <utility>

namespace hvd {

using negotiate::Decision;
using negotiate::Slot;

Follower::Follower(negotiate::Schedule schedule, size_t ids, Position position, int members)
    : epoch_(std::move(schedule), ids),
      position_(position),
      members_(static_cast<size_t>(members)),
      placed_(epoch_.places()) {}

bool Follower::Place(const HandlePtr& handle, uint32_t id) {
  const auto place = epoch_.Next(id, handle->ordinal != 0);
  if (!place || !Brings(epoch_.At(*place), handle->entry.request)) return false;
  epoch_.Fill(*place);
  placed_[*place].push_back(handle);
  ++placed_count_;
  return true;
}

// Whether this rank brings as many rows as in the steps that were learned.
bool Follower::Brings(const Slot& slot, const negotiate::Request& request) const {
  const Shape own = negotiate::SizesOf(request);
  if (slot.sizes.size() != own.size() * members_) return false;
  for (size_t i = 0; i < own.size(); ++i) {
    if (slot.sizes[i * members_ + position_.index()] != own[i]) return false;
  }
  return true;
}

std::vector<Decided> Follower::TakeBatch() {
  std::vector<Decided> batch;
  batch.reserve(epoch_.length());
  for (size_t place = epoch_.first(); place < epoch_.first() + epoch_.length(); ++place) {
    Decided& decided = batch.emplace_back();
    decided.handle = std::move(placed_[place].front());
    placed_[place].pop_front();
    decided.handle->decided = true;
    decided.decision.id = epoch_.At(place).id;
    decided.decision.known = true;
    decided.decision.ordinal = decided.handle->ordinal;
    decided.decision.sizes = epoch_.At(place).sizes;
  }
  taken_ += batch.size();
  epoch_.Pass();
  return batch;
}

}  // namespace hvd
