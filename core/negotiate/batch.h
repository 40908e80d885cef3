#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

// Who has announced one operation, and what they sent. Recycled: a steady state allocates nothing.
struct Tally {
  static constexpr uint64_t kAbsent = 0;

  // One of the different descriptions that members sent; a single one if they agree.
  struct Variant {
    uint32_t id = kNoId;  // kNoId: `request` describes it
    Request request;
  };

  uint64_t ordinal = 0;   // 0: named
  uint32_t name = kNoId;  // position in the sequencer's names; kNoId: unnamed
  Micros since = 0;       // the first announcement
  Micros latest = 0;      // the latest one
  size_t count = 0;       // members that have announced it or joined
  std::vector<uint64_t>
      index;  // by member: the how manieth announcement of it this is, from 1; kAbsent
  std::vector<Variant> variants;
  std::vector<uint32_t> variant_of;  // by member; empty while there is one variant
  std::vector<Shape> sizes;  // by member; empty unless somebody announced an operation with sizes

  explicit Tally(size_t members) : index(members, kAbsent) {}

  bool announced() const { return !variants.empty(); }  // by somebody
  bool ready() const { return count == index.size(); }
  void Add(size_t member, uint64_t at, size_t variant);
  void Reset();
};

// When the tensors that became ready one after another stop waiting for more:
// - at once when they are many bytes, or when every member is blocked on one of them;
// - when nothing has become ready for a while, a shorter one when some member is blocked on one of
// them;
// - when the first of them has waited for `age`, however many more trickle in: what nobody is
// blocked on
//   would otherwise be put off for as long as tensors come.
// A member that has joined is blocked on everything: on what it announced before because it was
// urged, and on the rest because its index of such a tally is Tally::kAbsent, which is lower than
// any number.
class Batch {
 public:
  struct Limits {
    int64_t bytes;
    Micros silence;
    Micros urgent_silence;
    Micros age;
  };

  Batch(size_t members, Limits limits);

  // From now on, also for the batch that is open.
  void SetLimits(Limits limits) { limits_ = limits; }

  void Add(const Tally& tally, int64_t bytes, Micros now);

  // `member` is blocked on its first `urgent` announcements; a lower number than before changes
  // nothing.
  void Urge(size_t member, uint64_t urgent);
  // The members count their announcements from 1 again. Only of an empty batch.
  void Restart() { std::fill(urgent_.begin(), urgent_.end(), uint64_t{0}); }

  bool Full() const { return bytes_ >= limits_.bytes; }
  bool Closed(Micros now) const;
  Micros Deadline() const;  // -1 when empty
  void Clear();

 private:
  void Watch(size_t i);

  Limits limits_;
  std::vector<uint64_t> urgent_;  // by member
  std::vector<const Tally*> tallies_;
  std::vector<size_t> not_blocked_;    // by tally: the first member that is not blocked on it
  std::vector<uint64_t> first_index_;  // by member: its earliest announcement of a tensor in here
  int64_t bytes_ = 0;
  Micros first_ = 0;  // when the first one became ready,
  Micros last_ = 0;   // and the last
  bool some_blocked_ = false;
  bool all_blocked_ = false;
};

}  // namespace hvd::negotiate
