#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/event_sink.h"

#include "runtime/operation/counters.h"
#include "runtime/operation/queue.h"
#include "runtime/progress/process_set.h"
#include "sim/ledger.h"
#include "sim/links.h"
#include "sim/memory.h"
#include "sim/plan.h"

namespace hvd::sim {

class Rank;

// What the ranks of a job have in common.
struct Job {
  Shape shape;
  Plan plan;
  World world;
  Links links;
  Ledger ledger;
  Topology topology;
  std::vector<const Rank*> ranks;
  std::vector<std::vector<std::shared_ptr<SharedMemory>>> memory;  // by set and host; null: links

  Job(const Shape& shape, Plan plan, uint64_t seed);
};

// What a rank's processor works on messages of control, by what the engine reports of them. The
// times are those of the core's own speed programs. Of operations that have ids, which are
// announced and decided as runs, these measure
// - speed_control: 53 ns to place one in a schedule, and 36 to announce it; 20 to match it with the
//   response, to which 5 come for the node (speed_negotiate: pass a run);
// - speed_negotiate: 6 to 7 for each child of a node that announces it (merge runs of 8 children).
class Work : public EventSink {
 public:
  Work(World* world, int rank) : world_(world), rank_(rank) {}
  void Begin(uint64_t, uint32_t, const OperationInfo&) override { Spend(new_names ? 300 : 60); }
  void BeginMessage(uint64_t, uint32_t, const MessageInfo&) override {}
  void Phase(uint64_t, const char*) override { Spend(new_names ? 200 : 25); }
  void End(uint64_t) override {}
  // Told for each rank below a child, which announces for all of them at once.
  void Ready(uint32_t, OpKind, std::string_view name, GlobalRank) override {
    if (std::exchange(latest_, std::string(name)) != name) Spend(new_names ? 1000 : 7);
  }
  void MarkCycle() override {}

  bool new_names = false;  // the operations are told in full

 private:
  void Spend(Nanos time) { world_->Spend(rank_, time); }

  World* const world_;
  const int rank_;
  std::string latest_;
};

// What a timeline would be told: each operation begins once, is decided, runs and ends.
class Timeline : public EventSink {
 public:
  void Begin(uint64_t operation, uint32_t, const OperationInfo&) override {
    if (!phases_.emplace(operation, 1).second) Violate("an operation begins twice");
  }
  void BeginMessage(uint64_t, uint32_t, const MessageInfo&) override {}
  void Phase(uint64_t operation, const char* phase) override {
    if (operation == 0) return;  // nobody submitted it here
    const int expected = std::string_view(phase) == kQueuePhase ? 1 : 2;
    const auto found = phases_.find(operation);
    // A group runs once for all its tensors, or in parts.
    const bool follows = found != phases_.end() &&
                         (found->second == expected || (expected == 2 && found->second == 3));
    if (!follows) Violate("an operation comes to " + std::string(phase) + " out of turn");
    found->second = expected + 1;
  }
  void End(uint64_t operation) override {
    if (operation == 0) return;
    if (phases_.erase(operation) == 0) Violate("an operation ends that has not begun");
  }
  void Ready(uint32_t, OpKind, std::string_view, GlobalRank) override {}
  void MarkCycle() override {}

 private:
  std::map<uint64_t, int> phases_;  // by operation in flight: how many it has been in
};

constexpr Nanos kHeartbeat = 1'000'000 * kMicro;

// A virtual rank: the engine of production, driven in virtual time, and the program that uses it.
// Its thread, descriptors and watcher are not there.
class Rank : public Actor {
 public:
  Rank(Job* job, int rank);

  void Act() override;

  // It has met its end.
  bool ended() const { return ended_; }
  bool finished() const { return step_ > job_->plan.steps.size() && flights_.empty(); }
  const Counters& counters() const { return counters_; }
  // The generation has ended: whatever is in flight fails.
  void Abort();
  // Whom the sequencer of all ranks, if it runs here, would say that everything waits for, if
  // nothing happened for so long.
  std::vector<GlobalRank> AbsentAfter(int64_t older_than_us);
  std::string Waiting() const;  // for messages

 private:
  struct Flight {
    HandlePtr handle;
    Submission submission;
    size_t step;
    Nanos since;
  };

  std::unique_ptr<ProcessSet> MakeSet(uint32_t id, const std::vector<int>& members);
  bool Round();
  bool HasWork() const;
  bool Relays() const;
  bool Beats() const;
  bool AsksEngine();
  bool LooksAt(const ProcessSet& set) const;
  void Drain();
  bool Go();
  bool Reap();
  void EndStep();
  void BeginStep();
  void Submit(const Submission& submission);
  void Join();
  Entry Describe(const Submission& submission) const;
  void Ask();
  const Flight* SameName(const Submission& submission) const;
  void LeaveSets();
  void CheckReports();
  // Whether it has waited in a set for what is called so, for so long.
  bool Awaits(uint32_t set, const std::string& name, Nanos time) const;
  void NoteEnd(const Handle& handle);
  bool HasJustEnded(uint32_t set, const std::string& name) const;
  Nanos DrawCompute(Nanos usual);
  Nanos Lasts(const Flight& flight) const;
  void MeetEnd();
  Random& random() { return job_->world.random(); }
  Nanos UpTo(Nanos most) { return static_cast<Nanos>(random().Below(static_cast<uint64_t>(most))); }

  Job* job_;
  const int rank_;
  Waker waker_;
  Queue queue_;
  Counters counters_;
  Work work_;  // counted where nothing is up to chance
  Timeline timeline_;
  SimTransport transport_;
  std::vector<std::unique_ptr<ProcessSet>> sets_;
  std::vector<HandlePtr> taken_;
  std::vector<HandlePtr> urged_;
  Nanos next_beat_ = 0;
  bool looks_at_relays_ = false;  // in its next round
  Nanos moved_ = 0;               // when anything last did

  // The program.
  size_t step_ = 0;
  std::vector<Submission> to_submit_;  // of the step, last first
  std::vector<Flight> flights_;
  std::map<std::pair<uint32_t, std::string>, Nanos> ends_;  // the latest, by set and name
  Nanos computes_until_ = 0;
  bool begun_ = false;    // the step
  bool waits_ = false;    // in the library
  HandlePtr awaited_;     // before it submits anything more
  bool goes_on_ = false;  // with the next step before this one is complete
  size_t next_join_ = 0;  // the step before which it joins
  bool aborted_ = false;
  bool ended_ = false;
  uint64_t messages_ = 0;  // sent before the step
  uint64_t frames_ = 0;    // likewise
};

}  // namespace hvd::sim
