#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/rank.h"
#include "negotiate/message.h"

namespace hvd::negotiate {

// Finds the rank that the others wait for again and again. Pure: the time is an argument.
//
// Waits overlap when several operations lack the same rank; each moment is counted once.
class Lateness {
 public:
  // `member` was the last to announce an operation that the others had all announced at `since`.
  // Null, or where to put the name of the operation, because it is the one that waited longest.
  std::string* Note(Position member, Micros since, Micros now);

  // The member to speak of, at most once a minute. Call every few seconds: time is looked at in
  // windows of ten seconds. Nobody: null.
  struct Straggler {
    Position member;
    size_t waits = 0;    // separate times in the window
    int percent = 0;     // of the window, from the beginning of its first wait on
    Micros median = 0;   // of the latest waits
    Micros longest = 0;  // and in which operation
    std::string name;
  };
  const Straggler* Take(Micros now);

 private:
  struct Member {
    Micros waited = 0;
    size_t waits = 0;
    Micros longest = 0;
    std::string name;
    std::vector<Micros> latest;  // a ring
  };

  void Judge(Micros window);

  std::map<Position, Member> late_;  // in this window
  Micros counted_until_ = 0;
  Micros window_start_ = -1;  // -1: nothing noted yet
  Micros quiet_until_ = 0;
  bool found_ = false;
  Straggler straggler_;
};

// For a log: who is late, by how much and with what.
std::string Describe(const Lateness::Straggler& straggler, GlobalRank rank);

}  // namespace hvd::negotiate
