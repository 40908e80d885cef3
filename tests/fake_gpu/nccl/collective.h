#pragma once

#include <string>
#include <vector>

#include "nccl/exchange.h"
#include "nccl/operation.h"

namespace fake_gpu {

// Where a rank stands in a communicator, for the functions that carry out its calls.
struct Seating {
  Exchange* exchange;
  int nranks;
  int rank;
  Exchange::Stopped stopped;
};

// Carries out one collective with all other ranks. kSuccess, also where it was stopped; or
// kInvalidUsage where the ranks have called different ones, which *why tells.
int RunCollective(const Seating& seating, const Call& call, std::string* why);

// Carries out all sends and receives of a group, each as far as its peer is.
int RunPointToPoint(const Seating& seating, const std::vector<Call>& calls, std::string* why);

}  // namespace fake_gpu
