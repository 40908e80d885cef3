#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace hvd::negotiate {

// Which of the announcements of a node those below it are blocked on, from what its children say of
// theirs. A child's how manieth announcement an operation is stands in a table: operations in
// flight, by number, times children.
//
// A child that has joined is blocked on everything: on what it announced before because it is urged
// then, and on the rest because it has no index of it, which is lower than any count.
class Urgency {
 public:
  explicit Urgency(size_t children) : children_(children) {}

  uint64_t Announced(size_t child) const { return children_[child].announced; }

  // A number that is used from now on.
  void Open(size_t operation);
  // The child's next announcement is this operation.
  void Announce(size_t child, size_t operation) {
    Index(operation)[child] = IndexAt(++children_[child].announced);
  }
  bool Has(size_t child, size_t operation) const { return Index(operation)[child] != 0; }

  // Nothing is in flight, and all count their announcements from 1 again.
  void Restart();

  // Some and all below the child are blocked on its first announcements; lower numbers than before
  // change nothing.
  void Urge(size_t child, uint64_t some, uint64_t all);

  // All children have announced it or joined: it is the node's next announcement.
  void Complete(size_t operation);
  // It is decided: its number is free.
  void Release(size_t operation);

  // So many of the node's own announcements; blocked on one counts as blocked on those before it.
  uint64_t announced() const { return announced_; }
  uint64_t some() const { return some_; }
  uint64_t all() const { return all_; }

 private:
  struct Child {
    uint64_t announced = 0;
    uint64_t some = 0;
    uint64_t all = 0;
  };
  // Complete and not decided, and not known yet to block all.
  struct Watched {
    size_t operation;
    uint64_t at;         // which of the node's announcements
    size_t not_blocked;  // the first child of which not all are blocked on it
  };

  // The lowest bits: what is in flight is never so far apart. 0: none.
  static uint32_t IndexAt(uint64_t announced) {
    const auto index = static_cast<uint32_t>(announced);
    return index == 0 ? 1 : index;
  }
  static bool IsWithin(uint32_t index, uint64_t count) {
    return index == 0 || static_cast<int32_t>(static_cast<uint32_t>(count) - index) >= 0;
  }
  uint32_t* Index(size_t operation) { return &indexes_[operation * children_.size()]; }
  const uint32_t* Index(size_t operation) const { return &indexes_[operation * children_.size()]; }
  void Watch(Watched* watched);

  std::vector<Child> children_;
  std::vector<uint32_t> indexes_;  // [operation * children + child]
  std::deque<Watched> watched_;    // in the order of `at`
  uint64_t announced_ = 0;
  uint64_t some_ = 0;
  uint64_t all_ = 0;
};

}  // namespace hvd::negotiate
