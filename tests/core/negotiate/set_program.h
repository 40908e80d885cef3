#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "negotiate/coordinator.h"

namespace hvd::negotiate {

// One operation in one set. Its ranks submit it once; the set's other members have joined by then.
struct SetOperation {
  int set = 0;
  Request request;         // but for what differs between the ranks, see RequestOf
  std::vector<int> ranks;  // global, sorted
  int odd = -1;            // this one of them submits a tensor more
  int act = 0;  // its ranks submit it in this act, or before they join if they have no such act
  bool waits = true;  // a rank begins its next act only when the operation has completed
};

// Every epoch begins with a barrier of all ranks (operation 0, act 0, in set 0), after which its
// sets exist and those of the epoch before that it lacks do not. It ends when the members of each
// set have joined.
struct Epoch {
  std::map<int, std::vector<int>> sets;  // id -> members; set 0 has all ranks and stays
  std::vector<int> acts;  // by rank: it joins all its sets after the barrier and so many acts
  std::vector<SetOperation> operations;  // the unnamed ones of a set in their order
};

struct SetProgram {
  uint64_t seed = 0;
  int ranks = 1;
  std::vector<int> hosts;  // by rank, and so the trees of the sets
  Micros max_delay = 0;
  SequencerOptions options;  // members are filled in
  std::vector<Epoch> epochs;
};

SetProgram RandomSetProgram(uint64_t seed);

// What this rank submits.
Request RequestOf(const SetProgram& program, size_t epoch, size_t operation, int rank);

// What the decision must say.
std::vector<int64_t> SizesOf(const SetProgram& program, size_t epoch, size_t operation);

// How the text of the error begins; empty if there must be none.
std::string ErrorOf(const SetOperation& operation);

}  // namespace hvd::negotiate
