#include "negotiate/tally.h"

#include <algorithm>

namespace hvd::negotiate {

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

}  // namespace hvd::negotiate
