#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "base/topology.h"
#include "negotiate/schedule_review.h"
#include "runtime/control/control.h"
#include "runtime/control/member.h"
#include "runtime/control/watermarks.h"
#include "runtime/progress/executor.h"
#include "runtime/progress/tree_node.h"
#include "runtime/tune/run.h"
#include "transport/window.h"

namespace hvd {

struct ProcessSetOptions {
  uint32_t id = 0;
  Members members;
  GlobalRank rank;  // this process
  Policy policy{128 << 20, -1};
  negotiate::SequencerOptions sequencer;  // without members
  std::optional<AutotuneSettings> autotune;
};

// What a process set talks and computes over. `window`: null over links.
struct ProcessSetWires {
  Topology topology;
  std::unique_ptr<Window> window;
  std::unique_ptr<Control> control;
  std::unique_ptr<Watermarks> watermarks;          // null: no schedule is ever followed
  std::vector<std::unique_ptr<Backend>> backends;  // see Executor
};

// Everything that one process set needs on one rank: its member, its node of the tree over which
// the set negotiates, the control messages between nodes, and the executor. Belongs to the holder
// of the progress lock.
class ProcessSet {
 public:
  ProcessSet(const ProcessSetOptions& options, ProcessSetWires wires, const Waker& waker,
             Queue* queue, Counters* counters, EventSink* events);

  void Add(const HandlePtr& handle) {
    ++submitted_;
    member_.Add(handle);
  }
  void Urge(const HandlePtr& handle) { member_.Urge(handle); }

  // One round of announcing, hearing the others, deciding and running. An error ends the
  // generation.
  Status Tick(negotiate::Micros now, bool* moved);

  // When Tick has something to do though nothing arrives; -1 = never.
  negotiate::Micros Deadline() const {
    return Earlier(Earlier(node_->Deadline(), ScheduleDeadline()), executor_.Deadline());
  }
  // Nothing waits to be sent.
  bool idle() const { return control_->idle() && (watermarks_ == nullptr || watermarks_->idle()); }
  // Whether this rank has something in flight here, or unsent.
  bool busy() const { return submitted_ != executor_.completed() || !idle(); }
  bool active = false;  // see SetTable
  bool moved = false;   // in the last round that looked at it
  // Sends what is left to send, and does nothing else.
  void Flush(bool* moved) { control_->Progress(moved); }

  uint32_t id() const { return options_.id; }
  const Members& members() const { return options_.members; }
  // Null but on the root of the tree.
  negotiate::Coordinator* root() const { return node_->root(); }
  // Whether others need this rank's engine though its program does nothing here: they announce to
  // it, or it passes their marks on.
  bool relays() const {
    return place_.children.size() > 1 || (watermarks_ != nullptr && watermarks_->relays());
  }
  // On the root: what some members wait for, and others have not submitted; the oldest first.
  std::vector<negotiate::Unready> Pending(negotiate::Micros now) const;
  Executor& executor() { return executor_; }
  Window* window() { return window_.get(); }  // null over links
  // Once Tick has failed because of what a member had sent: its global rank, or kUnknownRank where
  // anybody may have written it.
  static constexpr GlobalRank kUnknownRank{};
  std::optional<GlobalRank> culprit() const { return culprit_; }

 private:
  Status Refuse(Position neighbour, const Status& why);
  Status RefuseSent(Position member, const Status& why);
  Status RefuseWords(const Status& why);
  Status RefuseDecision(const Status& why);
  Status SharedMemoryIsCorrupt(const std::string& detail);
  Status Announce(negotiate::Micros now, bool* moved);
  Status HearChildren(negotiate::Micros now, bool* moved);
  Status TakeIn(size_t child, negotiate::AnnounceMessage message, negotiate::Micros now);
  void TraceReady(const negotiate::AnnounceMessage& message, size_t child) const;
  Status HearResponses(negotiate::Micros now, bool* moved);
  Status CarryOut(negotiate::Response response, negotiate::Micros now);

  // following.cc
  Status BeginSchedule(negotiate::Schedule schedule, const Policy& policy, negotiate::Micros now);
  Status Follow(negotiate::Micros now, bool* moved);
  bool Publish(negotiate::Micros now);
  bool Departs(negotiate::Micros now);
  bool Impatient(negotiate::Micros now);
  negotiate::Micros Patience() const;
  negotiate::Micros ScheduleDeadline() const;
  Status RunScheduled(negotiate::Micros now);
  size_t PayloadOf(const std::vector<negotiate::Request>& batch) const;
  void TraceNext() const;
  bool MayRead() const;
  void BeginReview();
  void NoteLate();
  Status LeaveSchedule(negotiate::Micros now, bool* moved);
  void TellWhereItWaits(negotiate::Micros now);

  void StartTuning();
  void Tune(const std::vector<Decided>& decided, negotiate::Micros now);
  void UseTuned();

  ProcessSetOptions options_;
  const Topology topology_;
  std::unique_ptr<Window> window_;  // outlives what lies in it
  std::unique_ptr<Control> control_;
  Counters* counters_;
  EventSink* events_;
  Member member_;
  std::optional<AutotuneRun> autotune_;  // of the root, while it tunes
  Executor executor_;

  // While a schedule is followed.
  struct Following {
    Policy policy{};                    // of its batches
    negotiate::Micros quiet_since = 0;  // the latest submission, or the latest batch that has run
    negotiate::Micros waits_since = 0;  // since this rank is ready for the next batch
    uint64_t filled = 0;                // operations, when last looked at
    bool told = false;                  // that this rank waits there
    std::vector<Executor::PlannedBatch> batches;  // as planned
  };
  std::unique_ptr<Watermarks> watermarks_;
  Following following_{};
  negotiate::ScheduleReview review_;  // of the root
  std::vector<HandlePtr> batch_;      // that runs, reused
  // What children that have left the schedule already announce.
  std::vector<std::pair<size_t, negotiate::AnnounceMessage>> early_;

  static constexpr size_t kSelf = 0;  // among the children
  static constexpr Position kRoot{0};
  const Topology::TreePlace place_;
  std::unique_ptr<TreeNode> node_;

  uint64_t submitted_ = 0;  // operations
  std::string scratch_;     // message bytes, reused
  std::optional<GlobalRank> culprit_;
};

}  // namespace hvd
