#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "negotiate/coordinator.h"

namespace hvd::negotiate {

// A job of virtual ranks in virtual time. Each step every rank submits the same operations in an
// order of its own (the unnamed ones in the same order), in bursts, and waits for them; every
// message travels with a random delay.
struct Scenario {
  uint64_t seed = 1;
  int ranks = 2;
  std::vector<int> hosts;  // by rank, and so the tree; empty: a star
  int steps = 4;
  int named = 20;  // among them allgathers, broadcasts and groups
  int unnamed = 4;
  Micros max_delay = 2000;
  SequencerOptions options;  // members are filled in
  int mismatches = 0;        // so many operations of step 1 have another shape on one rank
  int victim = -1;           // dies in the middle of the last step
};

struct Outcome {
  uint64_t trace = 0;                   // of everything that happened, in order
  std::vector<std::string> violations;  // of what must hold in every scenario
  std::vector<int64_t> full;            // full announcements by step
  std::vector<std::string> errors;      // each error that was decided, once
  int64_t responses = 0;
  int64_t decisions = 0;
  int finished = 0;                // ranks that completed all steps
  bool died = false;               // the victim, before it had submitted everything
  std::vector<Unready> pending;    // at the end
  std::set<std::string> orphaned;  // what the victim had not announced and others had, from the
                                   // simulator's own account
  Micros end = 0;
};

Outcome Simulate(const Scenario& scenario);

}  // namespace hvd::negotiate
