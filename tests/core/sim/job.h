#pragma once

#include <cstdint>
#include <string>

#include "sim/plan.h"

namespace hvd::sim {

// What a simulated job came to.
struct Outcome {
  std::string violation;  // empty: every rule was kept
  uint64_t steps = 0;
  uint64_t collectives = 0;
  uint64_t gates = 0;
  uint64_t schedules_left = 0;
  uint64_t events = 0;
  Nanos time = 0;  // virtual
};

// The job that follows from the seed: its shape, its program, and all chance in it.
Outcome RunSeed(uint64_t seed, int most_ranks);
Outcome RunJob(const Shape& shape, Plan plan, uint64_t seed);

// For people: what such a job is.
std::string Describe(const Shape& shape, const Plan& plan);

}  // namespace hvd::sim
