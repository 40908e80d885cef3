#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/links/plan.h"

namespace hvd {

// A stretch of the data on its way from or to another member.
struct Parcel {
  int member = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t scratch = 0;  // where it arrives to be combined; counted from the start of the scratch

  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

// A round of an exchange as one member sees it.
struct Move {
  uint32_t tag = 0;  // no two moves have the same between two members
  std::vector<Parcel> out;
  std::vector<Parcel> in;  // by member
  // Whether what arrives is combined with the own data, all of the same stretch, in the order of
  // the members; else it takes their place.
  bool combines = false;
  int64_t begin = 0;  // that stretch
  int64_t end = 0;
  int own_place = 0;          // among those that are combined
  bool finishes = false;      // nothing is added to it any more: divisor and postscale are due
  bool sends_it_too = false;  // what is combined is also what is sent
};

constexpr uint32_t kMoveTags = 128;  // the tags of one exchange are below

// What one member does, move by move.
struct Moves {
  std::vector<Move> list;
  int64_t scratch_bytes = 0;
  // The data are read once and combined once: a prescale is part of that, else due before.
  bool combines_once = false;
};

// Pure: every member comes to moves that fit those of the others. Blocks are whole elements.
Moves PlanMoves(const ExchangePlan& plan, int members, int self, int64_t bytes, int64_t element);

}  // namespace hvd
