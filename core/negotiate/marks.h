#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// What the members of a set say of themselves while they follow a schedule: a mark each, which only
// grows. It is how many batches of the schedule the member is ready for, and whether that is its
// last word. Batches are numbered from 1 on for as long as the set lives.
//
// Two things follow from all marks, and both are a least one:
// - a batch runs once every member is ready for it;
// - once every member is ready for as many as somebody's last word says, no more will ever run, and
//   the schedule is left.
// The least of several numbers is what it is whoever adds them up, in whatever order and however
// often. So a member may hear of others by way of others, late, or twice, and all find the same.
//
// The mark of a member carries its part of a small batch: its payload.
namespace hvd::negotiate {

// Nobody has said its last word.
constexpr uint64_t kNoEnd = ~uint64_t{0};

// Of one member, or of several: of those the least.
struct Marks {
  uint64_t ready = 0;     // batches
  uint64_t end = kNoEnd;  // what somebody who has said its last word is ready for

  bool ended() const { return end != kNoEnd; }
  bool over() const { return ready >= end; }
  void Add(const Marks& more) {
    ready = std::min(ready, more.ready);
    end = std::min(end, more.end);
  }
  bool operator==(const Marks& o) const { return ready == o.ready && end == o.end; }
};

constexpr size_t kPayloadUnit = 8;
constexpr size_t kMostPayload = 512;       // of one member
constexpr size_t kMostPayloads = 4 << 10;  // of all
constexpr size_t MostPayload(size_t members) {
  return std::min(kMostPayload, kMostPayloads / members / kPayloadUnit * kPayloadUnit);
}

// The batches of the schedule that is followed: equal on every member.
//
// A member is ready for a batch that carries payloads only when it has run all before, and for one
// behind that only when it has run that, too. So whoever is ready for the next but one has read
// what this one has brought, and two places are enough for all of them: by the parity of the
// number.
class Batches {
 public:
  // How far ahead of what it has run a member may be.
  static constexpr uint64_t kMostAhead = 64;

  // A schedule begins, whose batches have so large payloads, 0 for none.
  void Begin(std::vector<size_t> payloads);
  // It is left once all up to this one have run: numbers go on behind what anybody was ready for.
  void End(uint64_t passed) { base_ = passed + kMostAhead + 1; }

  uint64_t base() const { return base_; }  // the number before that of its first batch
  size_t PayloadOf(uint64_t number) const {
    return number <= base_ ? 0 : payloads_[IndexOf(number)];
  }
  // Up to which batch a member may be ready that has run all up to this one.
  uint64_t Reach(uint64_t passed) const { return passed + ahead_[IndexOf(passed + 1)]; }

 private:
  size_t IndexOf(uint64_t number) const { return (number - base_ - 1) % payloads_.size(); }

  uint64_t base_ = 0;
  std::vector<size_t> payloads_;  // by batch of the schedule
  std::vector<uint64_t> ahead_;   // likewise: with that batch, so many
};

}  // namespace hvd::negotiate
