#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/rank.h"
#include "negotiate/epoch.h"
#include "runtime/operation/handle.h"

namespace hvd {

// An operation that all members are ready for, with what was decided of it.
struct Decided {
  HandlePtr handle;
  negotiate::Decision decision;
};

// This rank's operations while its set follows a schedule.
class Follower {
 public:
  // `ids`: how many there are; those of the schedule are below.
  Follower(negotiate::Schedule schedule, size_t ids, Position position, int members);

  // `id`: of its request; kNoId: it has none. False: the schedule has no place for it.
  bool Place(const HandlePtr& handle, uint32_t id);

  // Whether this rank has submitted all of the next batch.
  bool Ready() const { return epoch_.Ready(); }
  // The operations of the next batch, once it is.
  template <typename Visit>
  void ForEachOfNext(Visit visit) const {
    for (size_t place = epoch_.first(); place < epoch_.first() + epoch_.length(); ++place)
      visit(*placed_[place].front());
  }
  // All members have.
  std::vector<Decided> TakeBatch();

  // The batches of the schedule, and the next one among them.
  const negotiate::Schedule& schedule() const { return epoch_.schedule(); }
  size_t next_batch() const { return epoch_.batch(); }

  // An operation of the next batch, for messages.
  uint32_t NextId() const { return epoch_.At(epoch_.first()).id; }

  uint64_t placed() const { return placed_count_; }  // so far
  uint64_t pending() const { return placed_count_ - taken_; }

  uint64_t batches() const { return epoch_.passed(); }
  uint64_t unnamed() const { return epoch_.unnamed(); }

 private:
  bool Brings(const negotiate::Slot& slot, const negotiate::Request& request) const;

  negotiate::Epoch epoch_;
  const Position position_;
  const size_t members_;
  std::vector<std::deque<HandlePtr>> placed_;  // by place
  uint64_t placed_count_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace hvd
