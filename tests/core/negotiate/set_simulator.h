#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "set_program.h"

namespace hvd::negotiate {

struct SetOutcome {
  uint64_t trace = 0;                   // of everything that happened, in order
  std::vector<std::string> violations;  // of what must hold with every program
  int64_t decisions = 0;
  int64_t partial = 0;  // of them
  int64_t errors = 0;   // of them
  int64_t joins = 0;    // of whole sets
  int removed = 0;      // sets
};

// Runs a program of several sets, with joins, by virtual ranks in virtual time; every message
// travels with a random delay, in order for each set and rank.
SetOutcome SimulateSets(const SetProgram& program);

}  // namespace hvd::negotiate
