#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "base/rank.h"

namespace hvd {

// Which ranks somebody on their host sees stopped, by a signal, a debugger or a container that is
// paused: from this rank itself or passed on by others. It is true for a while, and has to be seen
// again and again.
class StoppedRanks {
 public:
  StoppedRanks(int size, int64_t valid_us) : size_(size), valid_us_(valid_us) {}

  // Seen by this rank. True when that is new.
  bool Add(GlobalRank rank, int64_t seen_us) { return Add(rank, {seen_us, 0}); }

  bool Has(GlobalRank rank, int64_t now_us) const {
    const auto found = by_rank_.find(rank.value());
    return found != by_rank_.end() && IsValid(found->second, now_us);
  }

  bool Any(int64_t now_us) const {
    return std::any_of(by_rank_.begin(), by_rank_.end(),
                       [&](const auto& item) { return IsValid(item.second, now_us); });
  }

  // With how long ago each was seen, for the clocks of two hosts differ. Of very many the next ones
  // with each call, around.
  std::string Encode(int64_t now_us) {
    Forget(now_us);
    std::string bytes;
    auto at = by_rank_.lower_bound(next_);
    for (size_t left = std::min(kMost, by_rank_.size()); left > 0; --left) {
      if (at == by_rank_.end()) at = by_rank_.begin();
      const auto& [rank, sighting] = *at++;
      if (sighting.steps == kMostSteps) continue;
      const int64_t age_us = now_us - sighting.seen_us;
      const Item item{rank, static_cast<int32_t>(age_us / 1000), sighting.steps};
      bytes.append(reinterpret_cast<const char*>(&item), sizeof item);
    }
    next_ = at == by_rank_.end() ? 0 : at->first;
    return bytes;
  }

  // True when something of it is new.
  bool Merge(std::string_view encoded, int64_t now_us) {
    bool is_new = false;
    for (; encoded.size() >= sizeof(Item); encoded.remove_prefix(sizeof(Item))) {
      Item item;
      std::memcpy(&item, encoded.data(), sizeof item);
      if (item.age_ms < 0 || item.steps < 0 || item.steps >= kMostSteps) continue;
      const Sighting sighting{now_us - int64_t{item.age_ms} * 1000, item.steps + 1};
      if (IsValid(sighting, now_us)) is_new |= Add(GlobalRank(item.rank), sighting);
    }
    return is_new;
  }

 private:
  // News are older than they say by the time that they were under way: they would not age where two
  // ranks tell each other, were they passed on for ever.
  struct Sighting {
    int64_t seen_us;
    int steps;  // from rank to rank
  };
  struct Item {
    int32_t rank;
    int32_t age_ms;
    int32_t steps;
  };
  static constexpr int kMostSteps = 32;  // many more than lie between two ranks of any job
  static constexpr size_t kMost = 80;    // half of a frame

  bool Add(GlobalRank rank, const Sighting& sighting) {
    if (!rank.known() || rank.value() >= size_) return false;
    const auto [found, added] = by_rank_.try_emplace(rank.value(), sighting);
    if (found->second.seen_us < sighting.seen_us) found->second = sighting;
    return added;
  }

  bool IsValid(const Sighting& sighting, int64_t now_us) const {
    return now_us - sighting.seen_us < valid_us_;
  }

  void Forget(int64_t now_us) {
    for (auto at = by_rank_.begin(); at != by_rank_.end();)
      at = IsValid(at->second, now_us) ? std::next(at) : by_rank_.erase(at);
  }

  const int size_;
  const int64_t valid_us_;
  std::map<int, Sighting> by_rank_;
  int next_ = 0;  // to be told of
};

}  // namespace hvd
