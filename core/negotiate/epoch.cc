#include "negotiate/epoch.h"

#include <algorithm>
#include <utility>

namespace hvd::negotiate {
namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);

}  // namespace

Epoch::Epoch(Schedule schedule, size_t ids)
    : schedule_(std::move(schedule)), cursor_(ids, kNowhere) {
  for (const std::vector<Slot>& batch : schedule_.batches) {
    for (const Slot& slot : batch) slots_.push_back(&slot);
  }
  filled_.resize(slots_.size(), 0);
  next_.resize(slots_.size(), kNowhere);
  // From the last to the first, so that the cursors end at the first place of each id.
  for (size_t place = slots_.size(); place-- > 0;) {
    const Slot& slot = *slots_[place];
    if (slot.unnamed) continue;
    next_[place] = cursor_[slot.id];
    cursor_[slot.id] = place;
  }
  for (size_t place = 0; place < slots_.size(); ++place) {
    if (slots_[place]->unnamed) {
      unnamed_places_.push_back(place);
    } else if (next_[place] == kNowhere) {
      next_[place] = cursor_[slots_[place]->id];  // a schedule begins again when it ends
    }
  }
  CountMissing();
}

std::optional<size_t> Epoch::Next(uint32_t id, bool unnamed) const {
  size_t place = kNowhere;
  if (!unnamed) {
    if (id < cursor_.size()) place = cursor_[id];
  } else if (!unnamed_places_.empty()) {
    place = unnamed_places_[unnamed_cursor_];
    if (slots_[place]->id != id) place = kNowhere;
  }
  return place == kNowhere ? std::nullopt : std::optional(place);
}

void Epoch::Fill(size_t place) {
  const Slot& slot = *slots_[place];
  if (slot.unnamed) {
    unnamed_cursor_ = (unnamed_cursor_ + 1) % unnamed_places_.size();
  } else {
    cursor_[slot.id] = next_[place];
  }
  const bool of_next_batch = place >= first_ && place < first_ + length();
  if (filled_[place]++ == 0 && of_next_batch) --missing_;
}

void Epoch::Pass() {
  for (size_t place = first_; place < first_ + length(); ++place) {
    --filled_[place];
    unnamed_ += slots_[place]->unnamed ? 1 : 0;
  }
  ++passed_;
  first_ += length();
  if (++batch_ == schedule_.batches.size()) batch_ = first_ = 0;
  CountMissing();
}

void Epoch::CountMissing() {
  missing_ = static_cast<size_t>(
      std::count(filled_.begin() + static_cast<int64_t>(first_),
                 filled_.begin() + static_cast<int64_t>(first_ + length()), uint32_t{0}));
}

}  // namespace hvd::negotiate
