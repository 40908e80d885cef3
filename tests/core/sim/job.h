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

// What negotiation costs a job of so many ranks, eight a host, in steps of so many tensors: the
// first; the next, by ids; those of a learned schedule; and the first that departs from it.
struct Scale {
  int ranks = 0;
  int tensors = 0;
  Network network;
  struct Phase {
    double micros = 0;         // virtual, from the last submission to the last end
    double messages = 0;       // of control, of all ranks
    double most_messages = 0;  // of one
    double most_frames = 0;
  };
  Phase cold, cached, learned, departs;
  int most_peers = 0;       // to whom one rank has links for negotiation
  int more_data_links = 0;  // of one rank: for small allreduces, made on demand
};
Scale MeasureScale(int ranks, int tensors, const Network& network);
// The first step alone, which takes less memory: for jobs of thousands of ranks and tensors.
Scale::Phase MeasureFirstStep(int ranks, int tensors, const Network& network);

// For people: what such a job is.
std::string Describe(const Shape& shape, const Plan& plan);

}  // namespace hvd::sim
