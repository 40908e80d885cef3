#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

// Who has announced one operation, and what they sent. Recycled: a steady state allocates nothing.
struct Tally {
  // What a tally of an operation that all know by one id has no need of.
  struct Details {
    // What was sent, by whom once they are `listed`.
    std::vector<Variant> variants;
    // Before, all below the children that have announced it, and have not joined, sent variant 0.
    bool listed = false;
    Shape sizes;  // merged so far, see Announcement
  };

  explicit Tally(uint32_t number) : number(number) {}

  const uint32_t number;  // among the tallies
  uint32_t name = kNoId;  // see Names; kNoId: unnamed
  uint64_t ordinal = 0;   // 0: named
  uint64_t order = 0;     // of the first announcements of operations
  Micros since = 0;       // when somebody below began to wait for it
  Micros latest = -1;     // the latest one; -1: none yet
  uint32_t id = kNoId;    // what was sent, while there are no details
  uint32_t count = 0;     // children that have announced it or joined; 0: free
  bool complete = false;  // all of them: sent to the parent, and not decided yet
  std::unique_ptr<Details> details;
};

// The operations in flight at one node of the tree, by name or ordinal.
class Tallies {
 public:
  // A name, as a number: kept while an operation of that name is in flight, or an id means it.
  uint32_t NameOf(const std::string& text);
  const std::string& Text(uint32_t name) const { return *names_[name].text; }
  // kNoId when there is none.
  uint32_t FindName(const std::string& text) const;
  void Keep(uint32_t name) { names_[name].kept = true; }

  // Null where none is in flight.
  Tally* Named(uint32_t name) const { return names_[name].tally; }
  Tally* Unnamed(uint64_t ordinal) const;

  // One that is not in flight yet; of unnamed ones the next.
  Tally* Begin(uint32_t name, uint64_t ordinal);
  void End(Tally* tally);
  // Nothing is in flight any more; what unnamed operations were comes again.
  void Drop();
  // No id means any of them any more; none is in flight.
  void ForgetNames();
  // Unnamed operations count from 1 again; none is in flight.
  void Restart() { unnamed_base_ = 1; }
  // So many of them are never in flight here; none is now.
  void Skip(uint64_t unnamed) { unnamed_base_ += unnamed; }
  // The first one that has not ended.
  uint64_t unnamed_base() const { return unnamed_base_; }

  size_t in_flight() const { return all_.size() - free_.size(); }
  template <typename Visit>
  void ForEach(Visit visit) {
    for (Tally& tally : all_) {
      if (tally.count > 0) visit(&tally);
    }
  }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Tally& tally : all_) {
      if (tally.count > 0) visit(tally);
    }
  }

 private:
  struct Name {
    const std::string* text = nullptr;  // key of name_of_
    Tally* tally = nullptr;             // while in flight
    bool kept = false;
  };

  std::unordered_map<std::string, uint32_t> name_of_;
  std::vector<Name> names_;
  std::vector<uint32_t> free_names_;
  std::deque<Tally*> unnamed_;  // by ordinal from unnamed_base_; null: decided
  uint64_t unnamed_base_ = 1;
  std::deque<Tally> all_;  // in flight or free
  std::vector<Tally*> free_;
  uint64_t begun_ = 0;
};

}  // namespace hvd::negotiate
