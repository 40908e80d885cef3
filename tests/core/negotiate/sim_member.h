#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "negotiate/message.h"
#include "negotiate/response_cache.h"
#include "random.h"

namespace hvd::negotiate {

// What a step consists of; equal on every rank but for the first dimensions of allgathers.
std::vector<Request> Workload(uint64_t seed, int named, int unnamed);

// The first dimension that a rank gives tensor `tensor` of operation `operation` in this step.
int64_t FirstDim(uint64_t seed, int rank, int step, size_t operation, size_t tensor);

// The member's side of the negotiation as an engine does it: announce in full or by id, learn ids from the
// responses, carry the responses out in the order of their numbers.
class SimMember {
 public:
  SimMember(uint64_t seed, int rank, int ranks, const std::vector<Request>* workload);

  void BeginStep(int step);
  bool submitted() const { return next_ == order_.size(); }
  bool idle() const { return pending_.empty() && submitted(); }

  // Submits up to `count` operations; `block`: the program waits for all it has submitted. Encoded.
  std::string Submit(size_t count, bool block);

  // Carries a response out. What goes wrong is added to `violations`.
  void Receive(const std::string& bytes, std::vector<std::string>* violations);

  // One operation of the next step is submitted with another shape.
  void Spoil(size_t operation) { spoiled_.push_back(operation); }

  // Which operations (position in the workload) the latest Submit announced, and how many of them in full.
  const std::vector<size_t>& announced() const { return announced_; }
  int full() const { return full_; }
  uint64_t stream() const { return stream_; }  // hash of all responses
  int step() const { return step_; }

 private:
  struct Entry {
    size_t operation;
    bool in_full;
    Request request;
  };
  using Key = std::pair<std::string, uint64_t>;  // name or ordinal

  Announcement Announce(size_t operation);
  std::string CarryOut(const Decision& decision);
  std::string CheckDims(const Entry& entry, const Decision& decision) const;

  const uint64_t seed_;
  const int rank_;
  const int ranks_;
  const std::vector<Request>* workload_;
  Random random_;
  ResponseCache cache_{1 << 20};
  std::map<Key, Entry> pending_;
  std::vector<size_t> order_;
  std::vector<size_t> spoiled_;
  std::vector<size_t> announced_;
  size_t next_ = 0;
  int step_ = -1;
  int full_ = 0;
  uint64_t ordinal_ = 0;
  uint64_t submitted_ = 0;
  uint64_t urgent_ = 0;
  uint64_t number_ = 0;
  uint64_t stream_ = 0;
};

// FNV-1a, for traces.
uint64_t HashBytes(uint64_t hash, const std::string& bytes);

}  // namespace hvd::negotiate
