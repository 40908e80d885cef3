#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/collective.h"
#include "base/status.h"
#include "sim/plan.h"

namespace hvd::sim {

// What has happened so far, and the rules that it must keep.
class Ledger {
 public:
  Ledger(const Plan* plan, World* world) : plan_(plan), world_(world), costs_(plan->steps.size()) {}

  void Submitted(int rank, const Submission& submission, size_t step);
  // A rank starts a collective: as everybody does, and of operations that everybody has submitted.
  void Started(int rank, size_t set, const CollectiveSpec& spec);
  // When it is complete; -1: not all members have started it.
  Nanos CompleteAt(size_t set, uint64_t sequence) const;
  // An operation has ended on a rank.
  void Ended(int rank, const Submission& submission, size_t step, const Status& status);

  // Stands for the memory of an operation's tensor on a rank. Nobody reads it but to let marks
  // carry it: so it has a mark of each time that it is submitted.
  static std::byte* MemoryOf(size_t op, size_t tensor, int rank);
  static void MarkMemory(size_t op, size_t tensor, int rank, size_t step);

  // What negotiation has taken in a step: until the last operation ended on the last rank, once the
  // last rank had submitted its last one; and what the ranks have sent since they began it.
  struct StepCost {
    Nanos submitted = 0;
    Nanos ended = 0;
    uint64_t messages = 0;       // of control, of all ranks
    uint64_t most_messages = 0;  // of one rank
    uint64_t frames = 0;         // likewise, of any kind, on links
    uint64_t most_frames = 0;
  };
  // A rank has ended a step, in which it has sent so many.
  void EndedStep(size_t step, uint64_t messages, uint64_t frames);
  const std::vector<StepCost>& costs() const { return costs_; }

  uint64_t collectives() const { return meetings_.size(); }

 private:
  struct Meeting {
    CollectiveSpec spec;
    std::vector<size_t> ops;  // by piece; those of the first rank that has submitted them
    // Of the first tensor of each operation: the step that it is of, and by how many ranks.
    std::map<size_t, std::pair<size_t, size_t>> steps;
    size_t started = 0;
    Nanos complete_at = -1;
    // Of an alltoall, by member, until it is complete.
    std::vector<Piece> counts;
    std::vector<CollectiveSpec> exchanges;
  };
  // The numbers that members tell each other before an alltoall: all that is really carried.
  static bool IsCounts(const CollectiveSpec& spec);
  static void CarryCounts(const Meeting& meeting);
  static void CheckExchanges(const Meeting& meeting);
  void NoteSteps(int rank, const CollectiveSpec& spec, Meeting* meeting);
  void CheckGathered(size_t set, const CollectiveSpec& spec, const Meeting& meeting) const;
  void CheckSubmitted(const Meeting& meeting);
  void CheckSame(int rank, const Meeting& meeting, const CollectiveSpec& spec) const;

  const Plan* plan_;
  World* world_;
  std::map<std::pair<size_t, uint64_t>, Meeting> meetings_;
  // Steps, by operation and rank, but for those that fail.
  std::map<std::pair<size_t, int>, std::vector<size_t>> submitted_;
  std::vector<StepCost> costs_;
  std::map<std::pair<size_t, int>, size_t> started_;  // how many of them
  std::map<size_t, size_t> run_;  // the latest step of an operation that has, and 1
};

}  // namespace hvd::sim
