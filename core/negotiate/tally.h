#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

using Micros = int64_t;  // any monotonic clock

// Who has announced one operation, and what they sent. Recycled: a steady state allocates nothing.
struct Tally {
  static constexpr uint64_t kAbsent = 0;

  // One of the different descriptions that members sent; a single one if they agree.
  struct Variant {
    uint32_t id = kNoId;  // kNoId: `request` describes it
    Request request;
  };

  uint64_t ordinal = 0;         // 0: named
  uint32_t name = kNoId;        // position in the sequencer's names; kNoId: unnamed
  Micros since = 0;             // the first announcement
  Micros latest = 0;            // the latest one
  size_t count = 0;             // members that have announced it or joined
  std::vector<uint64_t> index;  // by member: the how manieth announcement of it this is, from 1; kAbsent
  std::vector<Variant> variants;
  std::vector<uint32_t> variant_of;  // by member; empty while there is one variant
  std::vector<Shape> sizes;          // by member; empty unless somebody announced an operation with sizes

  explicit Tally(size_t members) : index(members, kAbsent) {}

  bool announced() const { return !variants.empty(); }  // by somebody
  bool ready() const { return count == index.size(); }
  void Add(size_t member, uint64_t at, size_t variant);
  void Reset();
};

}  // namespace hvd::negotiate
