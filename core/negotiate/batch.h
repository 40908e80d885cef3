#pragma once

#include <cstdint>

#include "negotiate/message.h"

namespace hvd::negotiate {

// When the operations that became ready one after another stop waiting for more:
// - at once when they are many bytes, or when every member is blocked on one of them;
// - when nothing has become ready for a while, a shorter one when some member is blocked on one of
//   them;
// - when the first of them has waited for `age`, however many more trickle in: what nobody is
//   blocked on would otherwise be put off for as long as operations come.
class Batch {
 public:
  struct Limits {
    int64_t bytes;
    Micros silence;
    Micros urgent_silence;
    Micros age;
  };

  explicit Batch(Limits limits) : limits_(limits) {}

  // From now on, also for the batch that is open.
  void SetLimits(Limits limits) { limits_ = limits; }

  void Add(int64_t bytes, Micros now);

  // Some and all members are blocked on so many of the operations that were ever added or will be;
  // lower numbers than before change nothing.
  void Urge(uint64_t some, uint64_t all);
  // Operations are counted from 1 again. Only of an empty batch.
  void Restart() { added_ = some_ = all_ = 0, first_index_ = 1; }

  bool empty() const { return first_index_ > added_; }
  bool Full() const { return bytes_ >= limits_.bytes; }
  bool Closed(Micros now) const;
  Micros Deadline() const;  // -1 when empty
  void Clear();

 private:
  bool SomeBlocked() const { return some_ >= first_index_; }
  bool AllBlocked() const { return all_ >= first_index_; }

  Limits limits_;
  uint64_t added_ = 0;
  uint64_t first_index_ = 1;  // of what is in here
  uint64_t some_ = 0;
  uint64_t all_ = 0;
  int64_t bytes_ = 0;
  Micros first_ = 0;  // when the first one became ready,
  Micros last_ = 0;   // and the last
};

}  // namespace hvd::negotiate
