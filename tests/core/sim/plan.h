#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/topology.h"
#include "base/types.h"
#include "sim/world.h"

namespace hvd::sim {

// What a job is made of, besides chance.
struct Shape {
  int ranks = 4;
  int ranks_per_host = 2;     // of the hosts but the last
  bool shared_memory = true;  // within a host; otherwise links alone
  bool schedules = true;      // are learned
  Network network = kTcp;
  std::vector<int> hosts = {};      // by rank, where they are not dealt one host after the other
  size_t cache_capacity = 1 << 20;  // HOROVOD_CACHE_CAPACITY
  int64_t batch_bytes = 8 << 20;    // see SequencerOptions
  int64_t fusion_threshold = 128 << 20;  // of a collective
};

struct Set {
  std::vector<int> members;
};

// An operation that a program repeats.
struct Op {
  size_t set;
  OpKind kind;
  ReduceOp reduce_op;
  std::string name;  // empty: unnamed
  int64_t rows;
  int root;  // broadcast
  size_t tensors = 1;
};

// One time that it is submitted.
struct Submission {
  size_t op;
  int odd = -1;    // the rank that asks for another shape
  int tells = -1;  // the rank that sends a notice in place of it
  int longer =
      -1;  // the rank that brings more rows than usual, where each may bring its own number
  bool waits = false;  // all wait for it before they submit the next
};

// What all ranks do together before they wait for all of it.
using ProgramStep = std::vector<Submission>;

enum class Ending {
  kDone,    // every rank reaches the end
  kDeath,   // a rank dies before that
  kFreeze,  // a rank's process stops
  kHang,    // a rank's program goes on no more, while its engine serves the others
};

// What a rank tells by a notice.
uint8_t NoticeOf(int rank);

// The program of a whole job. It is the same for all ranks; when each does its part is theirs.
struct Plan {
  std::vector<Set> sets;  // the first: all ranks
  std::vector<Op> ops;
  std::vector<ProgramStep> steps;
  std::vector<size_t> joins_at;  // by rank: the step before which it joins everywhere
  bool joins_in_flight = false;  // and that without waiting for the step before
  // All have joined before this step, and go on with it when that is complete; if it is one.
  size_t resumes_at = SIZE_MAX;
  bool overlaps = false;    // a step may begin before the one before is complete
  bool priorities = false;  // operations have some
  bool ordered = false;     // within a step, as it must be where some are waited for
  bool slow = false;        // now and then a rank computes for seconds
  bool leaves = false;      // who has come to the end lets go of its sets
  // Everybody computes for so long before each step, submits in order, and waits; negative: all of
  // that is up to chance, and so is how long collectives take, which otherwise take no time.
  Nanos computes = -1;
  Ending ending = Ending::kDone;
  int victim = -1;
  size_t ends_at = 0;  // the step in which the victim's end comes

  bool Has(const Op& op, int rank, size_t step) const;
  // Who takes part with data of its own.
  std::vector<int> Present(const Op& op, size_t step) const;
  // Whether it ends in an error, everywhere.
  bool Fails(const Submission& submission, size_t step) const;
  // What all are told in place of it: 0 where nobody who takes part sends a notice.
  uint8_t NoticeIn(const Submission& submission, size_t step) const;
};

// Hosts by rank.
std::vector<int> HostsOf(const Shape& shape);

Shape DrawShape(Random* random, int most_ranks);
Plan DrawPlan(Random* random, const Shape& shape);

}  // namespace hvd::sim
