#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "negotiate/schedule.h"

namespace hvd::negotiate {

// A member's place in a schedule that the set follows until some member cannot: which operations it
// has submitted, how many batches are complete by that, and how many of these have run. Pure.
template <typename Operation>
class Epoch {
 public:
  // `ids`: how many there are; every id of the schedule is below. `base`: the number before that of
  // its first batch.
  Epoch(Schedule schedule, size_t ids, uint64_t base = 0);

  // The place of the operation that this member submits next, counted over all batches of the
  // schedule; nothing when the schedule has none for it. Unnamed operations keep their order.
  std::optional<size_t> Next(uint32_t id, bool unnamed) const;
  // It has submitted what Next has found the place of.
  void Fill(size_t place, Operation operation);
  // The place behind the latest one: where the next operation most likely belongs.
  size_t expected() const { return expected_; }

  const Schedule& schedule() const { return schedule_; }
  const Slot& At(size_t place) const { return *places_[place].slot; }

  // Up to which batch this member has submitted everything, and up to which all have run.
  uint64_t complete() const { return complete_.before; }
  uint64_t passed() const { return passed_.before; }
  // Whether a step ends with this one.
  bool EndsStep(uint64_t batch) const { return (batch - base_) % schedule_.batches.size() == 0; }
  bool Ready() const { return complete() > passed(); }  // for the next one
  // That one.
  size_t next_batch() const { return passed_.batch; }
  const std::vector<Slot>& next() const { return schedule_.batches[passed_.batch]; }

  // Operations of this member, submitted and still to run.
  uint64_t filled() const { return filled_; }
  uint64_t pending() const { return filled_ - taken_; }
  uint64_t unnamed() const { return unnamed_; }  // of the batches that have run

  // Those of the next batch, which is complete.
  template <typename Visit>
  void ForEachOfNext(Visit visit) const {
    for (size_t i = 0; i < next().size(); ++i) visit(places_[passed_.first + i].operations.front());
  }
  // It runs.
  template <typename Visit>
  void Pass(Visit visit);

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  struct Place {
    const Slot* slot;
    size_t next = kNowhere;  // the next one of the same id; named
    uint64_t filled = 0;     // how often
    std::deque<Operation> operations;
  };

  // A batch of the schedule, which begins again when it ends.
  struct Cursor {
    uint64_t before = 0;  // the number before its own
    size_t batch = 0;
    size_t first = 0;    // place of it
    uint64_t times = 0;  // that the schedule has ended
  };

  void Advance(Cursor* cursor) const;
  void CountMissing();

  const Schedule schedule_;
  const uint64_t base_;
  std::vector<Place> places_;    // of all batches, one after the other
  std::vector<size_t> cursors_;  // by id: the place that it fills next; kNowhere: none
  std::vector<size_t> unnamed_places_;
  size_t unnamed_cursor_ = 0;
  size_t expected_ = 0;

  Cursor complete_;     // the first batch that is not
  size_t missing_ = 0;  // operations of it
  Cursor passed_;       // the next batch
  uint64_t filled_ = 0;
  uint64_t taken_ = 0;
  uint64_t unnamed_ = 0;
};

template <typename Operation>
Epoch<Operation>::Epoch(Schedule schedule, size_t ids, uint64_t base)
    : schedule_(std::move(schedule)), base_(base), cursors_(ids, kNowhere) {
  complete_.before = passed_.before = base;
  for (const std::vector<Slot>& batch : schedule_.batches) {
    for (const Slot& slot : batch) places_.emplace_back().slot = &slot;
  }
  // From the last to the first, so that the cursors end at the first place of each id.
  for (size_t place = places_.size(); place-- > 0;) {
    const Slot& slot = At(place);
    if (!slot.unnamed) places_[place].next = std::exchange(cursors_[slot.id], place);
  }
  for (size_t place = 0; place < places_.size(); ++place) {
    if (At(place).unnamed) {
      unnamed_places_.push_back(place);
    } else if (places_[place].next == kNowhere) {
      places_[place].next = cursors_[At(place).id];  // a schedule begins again when it ends
    }
  }
  CountMissing();
}

template <typename Operation>
std::optional<size_t> Epoch<Operation>::Next(uint32_t id, bool unnamed) const {
  size_t place = kNowhere;
  if (!unnamed) {
    if (id < cursors_.size()) place = cursors_[id];
  } else if (!unnamed_places_.empty()) {
    place = unnamed_places_[unnamed_cursor_];
    if (At(place).id != id) place = kNowhere;
  }
  return place == kNowhere ? std::nullopt : std::optional(place);
}

template <typename Operation>
void Epoch<Operation>::Fill(size_t place, Operation operation) {
  Place& filled = places_[place];
  if (filled.slot->unnamed) {
    unnamed_cursor_ = (unnamed_cursor_ + 1) % unnamed_places_.size();
  } else {
    cursors_[filled.slot->id] = filled.next;
  }
  filled.operations.push_back(std::move(operation));
  ++filled_;
  expected_ = place + 1 < places_.size() ? place + 1 : 0;
  const size_t length = schedule_.batches[complete_.batch].size();
  const bool of_this = place >= complete_.first && place < complete_.first + length;
  const bool misses = filled.filled++ == complete_.times;
  if (!of_this || !misses || --missing_ > 0) return;
  Advance(&complete_);
  CountMissing();
}

template <typename Operation>
template <typename Visit>
void Epoch<Operation>::Pass(Visit visit) {
  for (size_t i = 0; i < next().size(); ++i) {
    Place& place = places_[passed_.first + i];
    visit(*place.slot, std::move(place.operations.front()));
    place.operations.pop_front();
    unnamed_ += place.slot->unnamed ? 1 : 0;
  }
  taken_ += next().size();
  Advance(&passed_);
}

template <typename Operation>
void Epoch<Operation>::Advance(Cursor* cursor) const {
  cursor->first += schedule_.batches[cursor->batch].size();
  ++cursor->before;
  if (++cursor->batch < schedule_.batches.size()) return;
  cursor->batch = cursor->first = 0;
  ++cursor->times;
}

template <typename Operation>
void Epoch<Operation>::CountMissing() {
  for (;; Advance(&complete_)) {
    missing_ = 0;
    for (size_t i = 0; i < schedule_.batches[complete_.batch].size(); ++i)
      missing_ += places_[complete_.first + i].filled == complete_.times ? 1 : 0;
    if (missing_ > 0) return;
  }
}

}  // namespace hvd::negotiate
