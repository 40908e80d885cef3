#pragma once

#include <optional>
#include <string>
#include <vector>

#include "negotiate/merger.h"
#include "negotiate/sequencer.h"
#include "negotiate/stall.h"

namespace hvd::negotiate {

// The root of the tree of a process set: a merger, and the sequencer that hears what it says.
class Coordinator {
 public:
  // Without children: every member is one.
  explicit Coordinator(const SequencerOptions& options,
                       std::vector<MergerOptions::Child> children = {});

  // As of Merger.
  Status Announce(size_t child, AnnounceMessage message, Micros now);
  // As of Sequencer; what it gives has passed the merger.
  std::optional<Response> Next(Micros now);
  Micros Deadline() const { return sequencer_.Deadline(); }
  void SetLimits(Batch::Limits limits) { sequencer_.SetLimits(limits); }
  std::string TakeStraggler(Micros now) { return sequencer_.TakeStraggler(now); }

  // Oldest first. Who has joined is not absent.
  std::vector<Unready> Pending(Micros now) const;

  const Merger& merger() const { return merger_; }

 private:
  const Members members_;
  Merger merger_;
  Sequencer sequencer_;
};

}  // namespace hvd::negotiate
