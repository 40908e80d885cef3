#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "negotiate/message.h"
#include "random.h"
#include "sim_client.h"

namespace hvd::negotiate {

// What a step consists of; equal on every rank but for the first dimensions of allgathers.
std::vector<Request> Workload(uint64_t seed, int named, int unnamed);

// The first dimension that a rank gives tensor `tensor` of operation `operation` in this step.
int64_t FirstDim(uint64_t seed, int rank, int step, size_t operation, size_t tensor);

// A rank's program: in each step it submits the workload in an order of its own.
class SimMember {
 public:
  SimMember(uint64_t seed, int rank, int ranks, const std::vector<Request>* workload);

  void BeginStep(int step);
  bool submitted() const { return next_ == order_.size(); }
  bool idle() const { return client_.idle() && submitted(); }

  // Submits up to `count` operations; `block`: the program waits for all it has submitted. Encoded.
  std::string Submit(size_t count, bool block);

  // Carries a response out. What goes wrong is added to `violations`.
  void Receive(const std::string& bytes, std::vector<std::string>* violations);

  // One operation of the next step is submitted with another shape.
  void Spoil(size_t operation) { spoiled_.push_back(operation); }

  // Which operations (position in the workload) the latest Submit announced, and how many of them
  // in full.
  const std::vector<size_t>& announced() const { return announced_; }
  int full() const { return client_.full(); }
  uint64_t stream() const { return client_.stream(); }
  int step() const { return step_; }

 private:
  void Announce(size_t operation);
  std::string CheckSizes(const SimClient::Done& done) const;

  const uint64_t seed_;
  const int rank_;
  const int ranks_;
  const std::vector<Request>* workload_;
  Random random_;
  SimClient client_;
  std::vector<size_t> order_;
  std::vector<size_t> spoiled_;
  std::vector<size_t> announced_;
  size_t next_ = 0;
  int step_ = -1;
};

}  // namespace hvd::negotiate
