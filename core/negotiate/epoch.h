#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "negotiate/schedule.h"

namespace hvd::negotiate {

// A member's place in a schedule that the set follows until some member cannot: which batch is
// next, and which operations of it, and of later ones, this member has submitted. Pure.
class Epoch {
 public:
  // `ids`: how many there are; every id of the schedule is below.
  Epoch(Schedule schedule, size_t ids);

  // The place of the operation that this member submits next, counted over all batches of the
  // schedule; nothing when the schedule has none for it. Unnamed operations keep their order.
  std::optional<size_t> Next(uint32_t id, bool unnamed) const;
  // It has submitted what Next has found the place of.
  void Fill(size_t place);

  const Schedule& schedule() const { return schedule_; }
  size_t batch() const { return batch_; }  // the next one

  size_t places() const { return slots_.size(); }
  const Slot& At(size_t place) const { return *slots_[place]; }

  // Whether this member has submitted all of the next batch.
  bool Ready() const { return missing_ == 0; }

  // The next batch is places [first(), first() + length()).
  size_t first() const { return first_; }
  size_t length() const { return schedule_.batches[batch_].size(); }

  // The next batch runs on all members.
  void Pass();

  uint64_t passed() const { return passed_; }    // batches
  uint64_t unnamed() const { return unnamed_; }  // unnamed operations in them

 private:
  void CountMissing();

  const Schedule schedule_;
  std::vector<const Slot*> slots_;  // of all batches, one after the other
  std::vector<uint32_t> filled_;    // by place: submitted, and not run yet
  std::vector<size_t> next_;        // by place: the next one of the same id; named
  std::vector<size_t> cursor_;      // by id: the place that it fills next; kNowhere: none
  std::vector<size_t> unnamed_places_;
  size_t unnamed_cursor_ = 0;

  size_t batch_ = 0;  // the next one
  size_t first_ = 0;  // its first place
  size_t missing_ = 0;
  uint64_t passed_ = 0;
  uint64_t unnamed_ = 0;
};

}  // namespace hvd::negotiate
