#include "negotiate/batch.h"

#include <algorithm>
#include <limits>

namespace hvd::negotiate {
namespace {

constexpr uint64_t kNothing = std::numeric_limits<uint64_t>::max();

}  // namespace

void Tally::Add(size_t member, uint64_t at, size_t variant) {
  index[member] = at;
  ++count;
  if (variant == 0) return;
  variant_of.resize(index.size(), 0);
  variant_of[member] = static_cast<uint32_t>(variant);
}

void Tally::Reset() {
  std::fill(index.begin(), index.end(), kAbsent);
  ordinal = 0;
  name = kNoId;
  count = 0;
  variants.clear();
  variant_of.clear();
  sizes.clear();
}

Batch::Batch(size_t members, Limits limits)
    : limits_(limits), urgent_(members, 0), first_index_(members, kNothing) {}

void Batch::Add(const Tally& tally, int64_t bytes, Micros now) {
  tallies_.push_back(&tally);
  not_blocked_.push_back(0);
  bytes_ = bytes > std::numeric_limits<int64_t>::max() - bytes_
               ? std::numeric_limits<int64_t>::max()
               : bytes_ + bytes;
  if (tallies_.size() == 1) first_ = now;
  last_ = now;
  if (!all_blocked_) Watch(tallies_.size() - 1);
  if (some_blocked_) return;
  for (size_t m = 0; m < urgent_.size(); ++m) {
    first_index_[m] = std::min(first_index_[m], tally.index[m]);
    some_blocked_ |= first_index_[m] <= urgent_[m];
  }
}

void Batch::Urge(size_t member, uint64_t urgent) {
  if (urgent <= urgent_[member]) return;
  urgent_[member] = urgent;
  some_blocked_ |= first_index_[member] <= urgent;
  for (size_t i = 0; i < tallies_.size() && !all_blocked_; ++i) {
    if (not_blocked_[i] == member) Watch(i);
  }
}

// Members never become unblocked of a tensor, so each is looked at once per tensor.
void Batch::Watch(size_t i) {
  size_t& member = not_blocked_[i];
  while (member < urgent_.size() && tallies_[i]->index[member] <= urgent_[member]) ++member;
  all_blocked_ |= member == urgent_.size();
}

bool Batch::Closed(Micros now) const {
  return !tallies_.empty() && (Full() || all_blocked_ || now >= Deadline());
}

Micros Batch::Deadline() const {
  if (tallies_.empty()) return -1;
  if (Full() || all_blocked_) return last_;
  const Micros silence = some_blocked_ ? limits_.urgent_silence : limits_.silence;
  return std::min(last_ + silence, first_ + limits_.age);
}

void Batch::Clear() {
  tallies_.clear();
  not_blocked_.clear();
  std::fill(first_index_.begin(), first_index_.end(), kNothing);
  bytes_ = 0;
  some_blocked_ = false;
  all_blocked_ = false;
}

}  // namespace hvd::negotiate
