#pragma once

#include <optional>
#include <string>
#include <vector>

#include "negotiate/merge/merger.h"
#include "negotiate/schedule.h"
#include "negotiate/sequencer.h"
#include "negotiate/stall.h"

namespace hvd::negotiate {

// The root of the tree of a process set: a merger, the sequencer that hears what it says, and who
// finds out that steps repeat.
class Coordinator {
 public:
  // Without children: every member is one.
  explicit Coordinator(const SequencerOptions& options,
                       std::vector<MergerOptions::Child> children = {});

  // As of Merger.
  Status Announce(size_t child, AnnounceMessage message, Micros now);
  // As of Sequencer; what it gives has passed the merger. With it the members may begin to follow a
  // schedule.
  std::optional<Response> Next(Micros now);
  // They have left the latest one after so many batches, with so many unnamed operations in them.
  // Until then nothing that they announce after it is taken in.
  void Resume(uint64_t batches, uint64_t unnamed);
  // Whether schedules are made, for which operations need ids.
  void Learn(bool learns) { learns_ = learns; }
  // Of the responses from now on.
  void SetPolicy(const Policy& policy) { policy_ = policy; }

  Micros Deadline() const { return sequencer_.Deadline(); }
  void SetLimits(Batch::Limits limits) { sequencer_.SetLimits(limits); }
  std::string TakeStraggler(Micros now) { return sequencer_.TakeStraggler(now); }
  std::string* NoteLate(Position member, Micros since, Micros published) {
    return sequencer_.NoteLate(member, since, published);
  }

  // Oldest first. Who has joined is not absent; while nothing else is pending, the join itself is,
  // since the others have done something last.
  std::vector<Unready> Pending(Micros now) const;
  // For people. `next`: an operation of the schedule, with so many unnamed ones of it before.
  std::string NameOf(const Request& next, uint64_t unnamed) const;
  // While a schedule is followed: who is ready for the batch of this number, which begins with
  // `next`, and who is not.
  std::optional<Unready> WaitedFor(uint64_t batch, const Request& next, uint64_t unnamed) const;

  const Merger& merger() const { return merger_; }

 private:
  std::optional<Response> Forgetting(std::optional<Response> response);
  void AddJoin(std::vector<Unready>* pending) const;

  const Members members_;
  Micros active_ = 0;  // when something was announced or decided, or somebody joined, last
  Merger merger_;
  Sequencer sequencer_;
  ScheduleLearner learner_;
  bool learns_;
  Policy policy_;
};

}  // namespace hvd::negotiate
