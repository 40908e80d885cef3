#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

// A set of numbers that lie close together, such as the ids of everything that is over: kept as
// ranges, so that it grows with the gaps between them and not with their count.
class IdRanges {
 public:
  void Add(uint32_t id) {
    const auto after = ranges_.begin() + (Behind(id) - ranges_.cbegin());
    if (after != ranges_.begin() && (after - 1)->last >= id) return;
    const bool follows = after != ranges_.begin() && (after - 1)->last + 1 == id;
    const bool precedes = after != ranges_.end() && id + 1 == after->first;
    if (follows && precedes) {
      (after - 1)->last = after->last;
      ranges_.erase(after);
    } else if (follows) {
      (after - 1)->last = id;
    } else if (precedes) {
      after->first = id;
    } else {
      ranges_.insert(after, {id, id});
    }
  }

  bool Has(uint32_t id) const {
    const auto after = Behind(id);
    return after != ranges_.begin() && id <= (after - 1)->last;
  }

  size_t ranges() const { return ranges_.size(); }

 private:
  struct Range {
    uint32_t first;
    uint32_t last;
  };

  // The first range that begins behind `id`.
  std::vector<Range>::const_iterator Behind(uint32_t id) const {
    return std::upper_bound(ranges_.begin(), ranges_.end(), id,
                            [](uint32_t value, const Range& range) { return value < range.first; });
  }

  std::vector<Range> ranges_;  // ascending, with gaps between them
};

}  // namespace hvd
