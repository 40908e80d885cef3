#include "runtime/liveness/departures.h"

namespace hvd {

namespace {

constexpr size_t kRanksInByte = 4;
constexpr int kLeft = 1;
constexpr int kAbandoned = 2;

int Shift(size_t rank) { return static_cast<int>(2 * (rank % kRanksInByte)); }

}  // namespace

bool Departures::Add(const Departure& departure) {
  const bool exists = departure.rank.known() && departure.rank.index() < by_rank_.size();
  if (!exists || Has(departure.rank)) return false;
  by_rank_[departure.rank.index()] = departure;
  in_order_.push_back(departure);
  return true;
}

const Departure* Departures::Find(GlobalRank rank) const {
  if (!rank.known() || rank.index() >= by_rank_.size()) return nullptr;
  const Departure& found = by_rank_[rank.index()];
  return found.rank.known() ? &found : nullptr;
}

std::string Departures::Encode() const {
  if (in_order_.empty()) return "";
  std::string bits((by_rank_.size() + kRanksInByte - 1) / kRanksInByte, '\0');
  for (const Departure& departure : in_order_) {
    const size_t rank = departure.rank.index();
    const int state = departure.abandoned ? kLeft | kAbandoned : kLeft;
    bits[rank / kRanksInByte] = static_cast<char>(bits[rank / kRanksInByte] | state << Shift(rank));
  }
  return bits;
}

bool Departures::Merge(std::string_view encoded, int64_t now_us) {
  bool is_new = false;
  for (size_t rank = 0; rank < by_rank_.size() && rank / kRanksInByte < encoded.size(); ++rank) {
    const int state = encoded[rank / kRanksInByte] >> Shift(rank);
    if ((state & kLeft) == 0) continue;
    is_new |= Add({GlobalRank(static_cast<int>(rank)), now_us, (state & kAbandoned) != 0});
  }
  return is_new;
}

}  // namespace hvd
