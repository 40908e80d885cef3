#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/event_sink.h"
#include "base/rank.h"
#include "fusion/plan.h"
#include "runtime/control/member.h"
#include "runtime/control/watermarks.h"
#include "runtime/operation/counters.h"
#include "runtime/operation/handle.h"
#include "runtime/operation/queue.h"
#include "runtime/operation/result_sizes.h"
#include "runtime/progress/count_exchange.h"

namespace hvd {

using negotiate::Policy;

// Runs the decided operations of one set: plans which tensors travel together, starts one
// collective after the other in the decided order, on the backend that serves it, and completes
// the handles. Before an alltoall comes a small one, in which the members tell each other how much
// they send. Collectives of one set run one at a time (they share the set's board and links);
// those of different sets interleave.
class Executor {
 public:
  // `position` is this rank's own. Of the backends the first that serves a collective runs it;
  // they ring `waker`, on which the driver sleeps.
  Executor(Members members, Position position, std::vector<std::unique_ptr<Backend>> backends,
           const Waker& waker, Queue* queue, Counters* counters, EventSink* events)
      : members_(std::move(members)),
        position_(position),
        backends_(std::move(backends)),
        waker_(waker),
        queue_(queue),
        counters_(counters),
        events_(events) {}

  // One response's operations, or one batch of a schedule.
  Status Add(std::vector<Decided> decided, const Policy& policy);

  // Whether the backend that runs it can do with inputs that marks carry; equal on every member.
  bool TakesGathered(const negotiate::Request& request) const;
  // The collectives of a batch of a schedule, whose operations are these. They are the same each
  // time: only whose memory they use is to be filled in. Empty where they are not: of a kind whose
  // sizes only negotiation tells, or of a GPU.
  class PlannedBatch;
  PlannedBatch Plan(const std::vector<negotiate::Request>& requests, const Policy& policy) const;
  // The operations of such a batch. `carrier`: marks have carried their inputs here from everybody
  // (see payload.h), so that with nothing before them they end at once; null: they have not.
  Status AddPlanned(const std::vector<HandlePtr>& operations, Watermarks* carrier,
                    PlannedBatch* batch);

  // Whether an operation that has not ended yet writes to memory that this one reads.
  bool WritesToInputOf(const Handle& handle) const;

  // Begins the next collective when none runs, and takes one step of it. *moved says whether
  // anything happened.
  Status Advance(bool* moved);

  // When Advance may find something though nothing wakes this rank; -1 = never.
  int64_t Deadline() const { return machine_ == nullptr ? -1 : machine_->deadline_us(); }

  // Whether a backend can be relied on no more.
  bool broken() const;

  // Once Advance has failed because of what a member has said: which one; else nobody.
  Position culprit() const { return culprit_; }

  // Handles completed since the last call, whose sinks are to be called without the progress lock.
  HandleChain TakeFinished() noexcept { return std::move(finished_); }

  // Aborts the backends and forgets the machines; user memory is not touched afterwards.
  void Abandon() noexcept;

  // Of the operations that this rank has submitted, so many have ended.
  uint64_t completed() const { return completed_; }

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
    bool carried = false;  // with everybody's input: nothing is left but arithmetic
  };

  // prepare.cc. Adds to `parts`, or to `last` what has no tensor.
  Status Prepare(Decided decided, std::vector<Part>* parts, std::vector<HandlePtr>* last);
  static Status PrepareOutput(const Part& part);
  static fusion::Ready Describe(const negotiate::Request& request, size_t tensor, double prescale,
                                const ResultSizes* sizes);
  CollectiveSpec SpecOf(const negotiate::Request& request, size_t tensor, double prescale,
                        const Policy& policy) const;
  Job MakeJob(std::vector<Part> parts, const Policy& policy) const;
  static Status KeepSharedInputs(Job* job);
  static Job BarrierJob(const HandlePtr& handle);

  // planned.cc
  static void Fill(const std::vector<HandlePtr>& operations, PlannedBatch* batch);
  void Gather(Watermarks* carrier, PlannedBatch* batch) const;
  void Combine(Job* job);

  // executor.cc.
  Backend* BackendOf(const CollectiveSpec& spec) const;
  Status CheckServed(const CollectiveSpec& spec) const;
  void Note(const Job& job);
  Status Begin(Job job);
  Status Launch();
  Status Start();
  std::unique_ptr<CountExchange> MakeCounts() const;
  Status UseCounts(const CountExchange* counts);
  Status Counted();
  Status AllocateResults();
  void Finish(Job& job);
  void GiveEnd(const Part& part) const;
  void Complete(const HandlePtr& handle, Status status) noexcept;
  void Trace(const Job& job);
  static std::string Title(const Job& job);

  Members members_;
  Position position_;
  std::vector<std::unique_ptr<Backend>> backends_;
  const Waker& waker_;
  Queue* queue_;
  Counters* counters_;
  EventSink* events_;

  std::deque<Job> waiting_;
  Job current_;
  Backend* backend_ = nullptr;             // that runs current_
  std::unique_ptr<CountExchange> counts_;  // what comes before current_; null: nothing does
  std::unique_ptr<StepMachine> machine_;   // of one of them, or what sets up its backend first
  bool setting_up_ = false;
  std::shared_ptr<const DeviceEnd> end_;  // of current_ on a device
  Position culprit_;
  std::vector<const Backend*> set_up_;  // those that are
  uint64_t sequence_ = 0;
  uint64_t completed_ = 0;
  HandleChain finished_;
};

class Executor::PlannedBatch {
 public:
  bool empty() const { return collectives_.empty(); }

 private:
  friend class Executor;
  // Of a tensor: the operation that it is of, its number there, and where its input lies in the
  // payload of each member.
  struct Source {
    size_t operation;
    size_t tensor;
    size_t in_payload;
  };
  struct Collective {
    Job job;
    std::vector<Source> sources;  // by part of the job
  };
  std::vector<Collective> collectives_;
};

}  // namespace hvd
