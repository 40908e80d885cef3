#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/event_sink.h"
#include "base/rank.h"
#include "runtime/control/member.h"
#include "runtime/operation/counters.h"
#include "runtime/operation/handle.h"
#include "runtime/operation/queue.h"
#include "runtime/operation/result_sizes.h"

namespace hvd {

// How decided operations are carried out: decided on the sequencer's rank, equal on all members.
struct Policy {
  int64_t fusion_threshold;
  int64_t direct_bytes;  // see CollectiveSpec
};

// Runs the decided operations of one set: plans which tensors travel together, starts one collective after
// the other in the decided order and completes the handles. Collectives of one set run one at a time
// (they share the set's board and links); those of different sets interleave.
class Executor {
 public:
  // `position` is this rank's own.
  Executor(Members members, Position position, std::unique_ptr<Backend> backend, Queue* queue,
           Counters* counters, EventSink* events)
      : members_(std::move(members)),
        position_(position),
        backend_(std::move(backend)),
        queue_(queue),
        counters_(counters),
        events_(events) {}

  // One response's operations.
  Status Add(std::vector<Decided> decided, const Policy& policy);

  // At most a few steps of the current collective. *moved says whether anything happened.
  Status Advance(bool* moved);

  // Handles completed since the last call, whose sinks are to be called without the progress lock.
  HandleChain TakeFinished() noexcept { return std::move(finished_); }

  // Forgets the machines; user memory is not touched afterwards.
  void Abandon() noexcept;

  // For messages: the collective that runs, "allreduce of 'a' and 2 more"; empty when none does.
  std::string Running() const;

 private:
  struct Part {
    HandlePtr handle;
    size_t tensor;
    double prescale;
    std::unique_ptr<ResultSizes> sizes;  // null where the kind has none
  };
  struct Job {
    CollectiveSpec spec;
    std::vector<Part> parts;
  };

  Status Prepare(Decided decided, std::vector<Part>* parts);
  Status PrepareResult(const HandlePtr& handle, const negotiate::Decision& decision, Part* part);
  Job MakeJob(std::vector<Part> parts, const Policy& policy) const;
  static Job BarrierJob(const HandlePtr& handle);
  void Start(Job job);
  void Finish(Job& job);
  void Complete(const HandlePtr& handle, Status status) noexcept;
  void Trace(const Job& job);

  Members members_;
  Position position_;
  std::unique_ptr<Backend> backend_;
  Queue* queue_;
  Counters* counters_;
  EventSink* events_;

  std::deque<Job> waiting_;
  Job current_;
  std::unique_ptr<StepMachine> machine_;  // of current_
  uint64_t sequence_ = 0;
  HandleChain finished_;
};

}  // namespace hvd
