#pragma once

#include <initializer_list>
#include <vector>

#include "base/rank.h"

namespace hvd {

// A set of positions, kept as runs of neighbours: those below a node of a tree are few runs,
// however many they are.
class Positions {
 public:
  struct Run {
    int first;
    int count;
    int before;  // positions of the set that are lower than `first`
    int end() const { return first + count; }
  };

  Positions() = default;
  Positions(std::initializer_list<int> positions) {
    for (const int position : positions) Add(Position(position));
  }
  static Positions Range(int first, int count);

  void Add(Position position) { Add(Range(position.value(), 1)); }
  void Add(const Positions& other);

  bool Has(Position position) const { return PlaceOf(position) >= 0; }
  // How many of the set are lower; -1: not in the set.
  int PlaceOf(Position position) const;
  bool Includes(const Positions& other) const { return other.Without(*this).empty(); }
  Positions Without(const Positions& other) const;

  bool empty() const { return runs_.empty(); }
  int size() const { return runs_.empty() ? 0 : runs_.back().before + runs_.back().count; }
  // Ascending; between two there is at least one position that is not in the set.
  const std::vector<Run>& runs() const { return runs_; }
  bool operator==(const Positions& other) const;

  std::vector<GlobalRank> RanksIn(const Members& members) const;

 private:
  void Append(int first, int end);

  std::vector<Run> runs_;
};

}  // namespace hvd
