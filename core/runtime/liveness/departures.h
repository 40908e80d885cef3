#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"

namespace hvd {

// How a rank left.
struct Departure {
  GlobalRank rank;
  int64_t since_us = 0;    // when this rank learned of it
  bool abandoned = false;  // with operations in flight
};

// Which ranks have left the job, as far as is known here: from themselves, or passed on by others. Ranks
// never come back, so two such sets unite in any order, and each rank is in it at most once.
class Departures {
 public:
  explicit Departures(int size) : by_rank_(static_cast<size_t>(size)) { in_order_.reserve(by_rank_.size()); }

  // False when it is known already, or there is no such rank.
  bool Add(const Departure& departure);

  const Departure* Find(GlobalRank rank) const;  // null: it is still here
  bool Has(GlobalRank rank) const { return Find(rank) != nullptr; }
  const std::vector<Departure>& all() const { return in_order_; }

  // Two bits for each rank.
  std::string Encode() const;
  // Adds what another rank knows; true when something is new. Bits of ranks that do not exist mean nothing.
  bool Merge(std::string_view encoded, int64_t now_us);

 private:
  std::vector<Departure> by_rank_;  // nobody: still here
  std::vector<Departure> in_order_;
};

}  // namespace hvd
