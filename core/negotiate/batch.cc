#include "negotiate/batch.h"

#include <algorithm>
#include <limits>

namespace hvd::negotiate {

void Batch::Add(int64_t bytes, Micros now) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  bytes_ = bytes > kHuge - bytes_ ? kHuge : bytes_ + bytes;
  if (empty()) first_ = now;
  last_ = now;
  ++added_;
}

void Batch::Urge(uint64_t some, uint64_t all) {
  some_ = std::max(some_, some);
  all_ = std::max(all_, all);
}

bool Batch::Closed(Micros now) const {
  return !empty() && (Full() || AllBlocked() || now >= Deadline());
}

Micros Batch::Deadline() const {
  if (empty()) return -1;
  if (Full() || AllBlocked()) return last_;
  const Micros silence = SomeBlocked() ? limits_.urgent_silence : limits_.silence;
  return std::min(last_ + silence, first_ + limits_.age);
}

void Batch::Clear() {
  first_index_ = added_ + 1;
  bytes_ = 0;
}

}  // namespace hvd::negotiate
