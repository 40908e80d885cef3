#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

namespace hvd {

// A number that mixes with no other kind of number. Made without one, it stands for nobody.
template <typename Kind>
class Numbered {
 public:
  constexpr Numbered() = default;
  constexpr explicit Numbered(int value) : value_(value) {}

  constexpr bool known() const { return value_ >= 0; }
  constexpr int value() const { return value_; }
  constexpr size_t index() const { return static_cast<size_t>(value_); }

  friend constexpr bool operator==(Numbered a, Numbered b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Numbered a, Numbered b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(Numbered a, Numbered b) { return a.value_ < b.value_; }
  friend std::ostream& operator<<(std::ostream& out, Numbered n) { return out << n.value_; }

 private:
  int value_ = -1;
};

// A rank of the job: what users know, what links lead to, and the only one that a message names.
using GlobalRank = Numbered<struct OfTheJob>;

// A member's place in its process set, from 0 on. It has no name: a message about it needs the
// set's members.
using Position = Numbered<struct OfASet>;

constexpr Position Next(Position position) { return Position(position.value() + 1); }

inline std::string Name(GlobalRank rank) { return "rank " + std::to_string(rank.value()); }

// Who belongs to a process set, ascending. The one place where a position becomes a rank and a rank
// a position.
class Members {
 public:
  Members() = default;
  explicit Members(const std::vector<int>& ranks)
      : ranks_(std::make_shared<const std::vector<GlobalRank>>(ranks.begin(), ranks.end())) {}
  Members(std::initializer_list<int> ranks) : Members(std::vector<int>(ranks)) {}

  // All ranks of a job of this size.
  static Members Everybody(int size) {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return Members(all);
  }

  int size() const { return static_cast<int>(ranks().size()); }
  const std::vector<GlobalRank>& ranks() const {
    static const std::vector<GlobalRank> nobody;
    return ranks_ == nullptr ? nobody : *ranks_;
  }

  GlobalRank operator[](Position position) const { return ranks()[position.index()]; }
  // Nobody's position when the rank is no member.
  Position Find(GlobalRank rank) const {
    const auto found = std::find(ranks().begin(), ranks().end(), rank);
    return found == ranks().end() ? Position()
                                  : Position(static_cast<int>(found - ranks().begin()));
  }
  bool Has(GlobalRank rank) const { return Find(rank).known(); }

 private:
  // Shared by all copies: a large set is described once.
  std::shared_ptr<const std::vector<GlobalRank>> ranks_;
};

}  // namespace hvd
