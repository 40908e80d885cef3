#pragma once

#include <cstdint>
#include <cstring>
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

  // True when that is new.
  bool Add(GlobalRank rank, int64_t seen_us) {
    if (!rank.known() || rank.value() >= size_) return false;
    const auto [found, added] = seen_us_.try_emplace(rank.value(), seen_us);
    if (found->second < seen_us) found->second = seen_us;
    return added;
  }

  bool Has(GlobalRank rank, int64_t now_us) const {
    const auto found = seen_us_.find(rank.value());
    return found != seen_us_.end() && now_us - found->second < valid_us_;
  }

  // With how long ago each was seen, for the clocks of two hosts differ.
  std::string Encode(int64_t now_us) {
    std::string bytes;
    for (auto at = seen_us_.begin(); at != seen_us_.end();) {
      const int64_t age_us = now_us - at->second;
      if (age_us >= valid_us_) {
        at = seen_us_.erase(at);
        continue;
      }
      const Item item{at->first, static_cast<int32_t>(age_us / 1000)};
      if (bytes.size() < kMost * sizeof item)
        bytes.append(reinterpret_cast<const char*>(&item), sizeof item);
      ++at;
    }
    return bytes;
  }

  // True when something of it is new.
  bool Merge(std::string_view encoded, int64_t now_us) {
    bool is_new = false;
    for (; encoded.size() >= sizeof(Item); encoded.remove_prefix(sizeof(Item))) {
      Item item;
      std::memcpy(&item, encoded.data(), sizeof item);
      const int64_t age_us = int64_t{item.age_ms} * 1000;
      if (item.age_ms >= 0 && age_us < valid_us_) {
        is_new |= Add(GlobalRank(item.rank), now_us - age_us);
      }
    }
    return is_new;
  }

 private:
  struct Item {
    int32_t rank;
    int32_t age_ms;
  };
  static constexpr size_t kMost = 32;

  const int size_;
  const int64_t valid_us_;
  std::map<int, int64_t> seen_us_;  // by rank
};

}  // namespace hvd
