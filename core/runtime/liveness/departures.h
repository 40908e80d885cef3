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

// Which ranks have left the job, as far as is known here: from themselves, or passed on by others.
// Ranks never come back, so two such sets unite in any order, and each rank is in it at most once.
class Departures {
 public:
  explicit Departures(int size) : by_rank_(static_cast<size_t>(size)) {
    in_order_.reserve(by_rank_.size());
  }

  // False when it is known already, or there is no such rank.
  bool Add(const Departure& departure) {
    if (!Exists(departure.rank) || Has(departure.rank)) return false;
    by_rank_[departure.rank.index()] = departure;
    in_order_.push_back(departure);
    return true;
  }

  // Null: it is still here.
  const Departure* Find(GlobalRank rank) const {
    if (!Exists(rank)) return nullptr;
    const Departure& found = by_rank_[rank.index()];
    return found.rank.known() ? &found : nullptr;
  }
  bool Has(GlobalRank rank) const { return Find(rank) != nullptr; }
  const std::vector<Departure>& all() const { return in_order_; }

  // Two bits for each rank.
  std::string Encode() const {
    if (in_order_.empty()) return "";
    std::string bits((by_rank_.size() + kRanksInByte - 1) / kRanksInByte, '\0');
    for (const Departure& departure : in_order_) {
      const size_t rank = departure.rank.index();
      const int state = departure.abandoned ? kLeft | kAbandoned : kLeft;
      bits[rank / kRanksInByte] =
          static_cast<char>(bits[rank / kRanksInByte] | state << Shift(rank));
    }
    return bits;
  }

  // Adds what another rank knows; true when something is new. Bits of ranks that do not exist mean
  // nothing.
  bool Merge(std::string_view encoded, int64_t now_us) {
    bool is_new = false;
    for (size_t rank = 0; rank < by_rank_.size() && rank / kRanksInByte < encoded.size(); ++rank) {
      const int state = encoded[rank / kRanksInByte] >> Shift(rank);
      if ((state & kLeft) == 0) continue;
      is_new |= Add({GlobalRank(static_cast<int>(rank)), now_us, (state & kAbandoned) != 0});
    }
    return is_new;
  }

 private:
  static constexpr size_t kRanksInByte = 4;
  static constexpr int kLeft = 1;
  static constexpr int kAbandoned = 2;
  static int Shift(size_t rank) { return static_cast<int>(2 * (rank % kRanksInByte)); }

  bool Exists(GlobalRank rank) const { return rank.known() && rank.index() < by_rank_.size(); }

  std::vector<Departure> by_rank_;  // nobody: still here
  std::vector<Departure> in_order_;
};

}  // namespace hvd
