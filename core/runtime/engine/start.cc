// How a rank's engine comes to life.

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "base/topology.h"
#include "negotiate/agreement.h"
#include "runtime/engine/rank_engine.h"
#include "settings/failpoint.h"
#include "settings/log.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
constexpr char kShutdownReason[] =
    "Horovod has been shut down, by shutdown() or the end of the program, while the operation was "
    "in flight.";

int64_t CycleMicros(const Config& config) {
  return static_cast<int64_t>(config.cycle_time_ms * 1000);
}

LoopOptions LoopOptionsFor(const EngineOptions& options, int cores, int local_size) {
  LoopOptions loop;
  // A waiter is its rank's runnable thread; the background thread is one more, beside the
  // program's. Where ranks share cores a waiter lets the others run between two looks, which is
  // still several times faster than to sleep and be woken; its turn comes once all have had theirs.
  const int ranks_per_core = (local_size + cores - 1) / cores;
  loop.waiter_spin_us = 100 * ranks_per_core;
  loop.waiter_yields = ranks_per_core > 1;
  loop.background_spin_us = cores > local_size ? 20 : 0;
  loop.collect_us = std::min<int64_t>(loop.collect_us, CycleMicros(options.config));
  const std::vector<int>& cores_wanted = options.config.thread_affinity;
  const auto local_rank = static_cast<size_t>(options.local_rank);
  if (local_rank < cores_wanted.size()) loop.core = cores_wanted[local_rank];
  return loop;
}

std::string Medium(const Topology& topology) {
  if (topology.AllShareMemory()) return ", over shared memory";
  if (!topology.hosts_share_memory()) return ", over links";
  return ", over shared memory on each of " + std::to_string(topology.hosts()) +
         " hosts and links between them";
}

// How a batch closes and what waiting costs, in one line.
std::string Outline(const ProcessSetOptions& set, const LoopOptions& loop, int cores) {
  return std::to_string(cores) + (cores == 1 ? " core" : " cores") +
         " for the ranks of this host: who waits " +
         (loop.waiter_yields ? "lets other ranks run" : "spins") + " for at most " +
         std::to_string(loop.waiter_spin_us) + " us, then sleeps; a batch closes at " +
         SizeText(set.sequencer.batch_bytes) + " or after " +
         std::to_string(set.sequencer.silence) + " us of silence, a collective takes at most " +
         SizeText(set.policy.fusion_threshold) +
         (set.autotune ? " (until autotune changes it)" : "");
}

AutotuneSettings AutotuneSettingsFor(const Config& config) {
  AutotuneSettings autotune;
  autotune.warmup_samples = config.autotune_warmup_samples;
  autotune.steps_per_sample = config.autotune_steps_per_sample;
  autotune.search_samples = config.autotune_max_samples;
  autotune.noise = config.autotune_noise;
  autotune.longest_window_us = CycleMicros(config);
  autotune.log = config.autotune_log;
  return autotune;
}

StallOptions StallOptionsFor(const Config& config) {
  const auto micros = [](double seconds) { return static_cast<int64_t>(seconds * kSecond); };
  StallOptions stall;
  stall.warning_us = config.stall_check_disable ? 0 : micros(config.stall_check_seconds);
  // Whoever is ended for a stall has been shown before.
  if (config.stall_shutdown_seconds > 0) {
    stall.warning_us = std::min(stall.warning_us, micros(config.stall_shutdown_seconds / 2));
  }
  stall.failure_us = micros(config.stall_shutdown_seconds);
  stall.deadlock_us = config.stall_check_disable ? 0 : micros(config.stall_deadlock_seconds);
  return stall;
}

// What autotune has found in an earlier run, as the user sets it for this one.
void KeepTuned(const Config& config, ProcessSetOptions* set) {
  negotiate::SequencerOptions* sequencer = &set->sequencer;
  if (config.batch_bytes != kUnset) sequencer->batch_bytes = config.batch_bytes;
  set->policy.direct_bytes = config.direct_bytes;
  if (config.batch_window_ms < 0) return;
  sequencer->silence = static_cast<int64_t>(config.batch_window_ms * 1000);
  sequencer->urgent_silence =
      std::min(sequencer->silence, negotiate::SequencerOptions().urgent_silence);
}

}  // namespace

Status RankEngine::Start() {
  try {
    PrepareToThrow();
    PrepareErrors();
    (void)threads_.Caller();  // which may submit something, whoever waits first
    Status status = TryStart();
    if (!status.ok()) TellLauncher(status);
    return status;
  } catch (const std::bad_alloc&) {
    const SharedText& prepared = prepared_.no_memory_to_start.reason;
    return {Code::kUnavailable,
            prepared.empty() ? OutOfMemory(rank(), "started").reason : prepared};
  } catch (const std::system_error& error) {
    return {Code::kUnavailable,
            "rank " + std::to_string(options_.rank) + " cannot start a thread: " + error.what() +
                ". Raise the limit of processes (ulimit -u, or the container's)."};
  }
}

// Which other rank is why this one does not start: it may be slower than this one to end.
void RankEngine::TellLauncher(const Status& status) noexcept {
  const GlobalRank culprit = wirer_ == nullptr ? GlobalRank() : wirer_->failed_rank();
  if (!culprit.known() || culprit.value() == options_.rank || options_.launcher.fd < 0) return;
  LauncherLink launcher(std::exchange(options_.launcher, {}));
  launcher.Report(About(CauseKind::kFault, culprit, status.text()));
}

Status RankEngine::TryStart() {
  HVD_RETURN_IF_ERROR(waker_.status());
  HVD_RETURN_IF_ERROR(link_requests_.status());
  HVD_RETURN_IF_ERROR(failpoint::Arm(options_.config.failpoint, options_.rank));
  OpenTimeline();
  for (const Link& link : options_.links) descriptors_.push_back(link.fd);
  descriptors_.push_back(waker_.fd());
  if (options_.launcher.fd >= 0) descriptors_.push_back(options_.launcher.fd);
  HVD_RETURN_IF_ERROR(Wirer::Make(&options_, waker_, &link_requests_, &link_signs_, &wirer_));
  MakeCycle();
  ListenToGpus();
  HVD_RETURN_IF_ERROR(WireFirstSets());
  const int local_size = wirer_->job().LocalSize(Position(options_.rank));
  const LoopOptions loop = LoopOptionsFor(options_, wirer_->cores(), local_size);
  loop_ = std::make_unique<Loop>(loop, cycle_.get(), &queue_, &waker_, &counters_);
  if (options_.rank == 0 && Logs(LogLevel::kInfo)) {
    Log(LogLevel::kInfo,
        Outline(SetOptions(0, Members::Everybody(options_.size)), loop, wirer_->cores()));
  }
  return MakeWatcher();
}

void RankEngine::PrepareErrors() {
  prepared_.no_memory_to_start = OutOfMemory(rank(), "started");
  prepared_.no_memory_to_submit = OutOfMemory(rank(), "submitted an operation");
  prepared_.no_memory_for_sets = OutOfMemory(rank(), "added or removed a process set");
  prepared_.shut_down.culprit = rank();
  prepared_.shut_down.reason = kShutdownReason;
  prepared_.not_complete = {Code::kTimeout, "the operation is not complete yet"};
}

Status RankEngine::WireFirstSets() {
  std::vector<Members> first{Members::Everybody(options_.size)};
  for (const std::vector<int>& ranks : options_.process_sets) first.emplace_back(ranks);
  // What brought the links here has taken its part of the time.
  const int64_t deadline =
      options_.start_us > 0 ? NowMicros() + options_.start_us : StartDeadline();
  for (const Members& members : first) {
    uint32_t id = 0;
    HVD_RETURN_IF_ERROR(sets_.Add(members, &id));
    ProcessSetWires wires;
    HVD_RETURN_IF_ERROR(wirer_->Prepare(id, members, deadline, &wires));
    if (!sets_.Has(id, rank())) continue;
    wirer_->Finish(id, members, &wires);
    cycle_->Own(MakeSet(id, members, std::move(wires)));
  }
  peer::Channels channels;
  HVD_RETURN_IF_ERROR(wirer_->MakeChannels(deadline, &channels));
  cycle_->Own(std::make_unique<peer::Messages>(rank(), options_.size, std::move(channels), &queue_,
                                               timeline_.get()));
  return Status::Ok();
}

int64_t RankEngine::StartDeadline() const {
  return NowMicros() + static_cast<int64_t>(options_.config.start_timeout_seconds * kSecond);
}

// A job does not fail for want of its timeline.
void RankEngine::OpenTimeline() {
  const Config& config = options_.config;
  if (!Timeline::Wanted(config.timeline, options_.rank)) return;
  timeline_ = std::make_unique<Timeline>(options_.rank);
  if (Timeline::IsDynamic(config.timeline)) return;
  const Status status = timeline_->Start(config.timeline, config.timeline_mark_cycles);
  if (!status.ok()) Log(LogLevel::kWarning, status.message() + ". The job goes on without it.");
}

ProcessSetOptions RankEngine::SetOptions(uint32_t id, const Members& members) const {
  const Config& config = options_.config;
  ProcessSetOptions set;
  set.id = id;
  set.members = members;
  set.rank = rank();
  set.policy.fusion_threshold = config.fusion_threshold;
  if (config.cache_capacity >= 0)
    set.sequencer.cache_capacity = static_cast<size_t>(config.cache_capacity);
  set.sequencer.silence = std::min<int64_t>(set.sequencer.silence, CycleMicros(config));
  set.sequencer.urgent_silence = std::min(set.sequencer.silence, set.sequencer.urgent_silence);
  if (config.fusion_threshold > 0) {
    set.sequencer.batch_bytes = std::min(set.sequencer.batch_bytes, config.fusion_threshold);
  }
  if (!config.learned_schedule) set.sequencer.learning.repeats = 0;
  KeepTuned(config, &set);
  if (config.autotune && id == 0) set.autotune = AutotuneSettingsFor(config);
  return set;
}

std::unique_ptr<ProcessSet> RankEngine::MakeSet(uint32_t id, const Members& members,
                                                ProcessSetWires wires) {
  if (Logs(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "process set " + std::to_string(id) + ": " +
                              negotiate::RankList(members.ranks()) + Medium(wires.topology));
  }
  return std::make_unique<ProcessSet>(SetOptions(id, members), std::move(wires), waker_, &queue_,
                                      &counters_, timeline_.get());
}

void RankEngine::MakeCycle() {
  CycleOptions cycle;
  cycle.stall = StallOptionsFor(options_.config);
  cycle.stall.everybody_blocked_us = [this] { return watcher_->EverybodyBlockedMicros(); };
  cycle.stall.open_messages = [this] { return OpenMessages(); };
  cycle.stall.on_stall = [this] { ShowStacks(); };
  cycle.stall.on_failure = [this](Cause cause) { watcher_->Abort(std::move(cause)); };
  cycle.on_end = [this](Cause cause) { watcher_->Suspect(std::move(cause)); };
  cycle.on_failure = [this](Cause cause) { watcher_->Abort(std::move(cause)); };
  cycle_ = std::make_unique<Cycle>(rank(), cycle, &queue_, &abort_);
  for (auto& transport : wirer_->TakeTransports()) cycle_->Own(std::move(transport));
}

// Of what a GPU was given and the host is done with.
void RankEngine::ListenToGpus() {
  nccl::GpuListener listener;
  const StallOptions stall = StallOptionsFor(options_.config);
  listener.warning_us = stall.warning_us;
  listener.failure_us = stall.failure_us;
  listener.on_stall = [this](const std::string& report, bool first) {
    Log(LogLevel::kWarning, report);
    if (first) ShowStacks();
  };
  listener.on_trouble = [this](nccl::GpuTrouble trouble) {
    const CauseKind kind = trouble.stalled ? CauseKind::kStall : CauseKind::kFault;
    watcher_->Abort(About(kind, trouble.culprit, std::move(trouble.reason)));
  };
  wirer_->Listen(std::move(listener));
}

Status RankEngine::MakeWatcher() {
  WatcherOptions watcher;
  watcher.generation = options_.generation;
  watcher.rank = rank();
  watcher.size = options_.size;
  watcher.job = wirer_->job();
  watcher.home = HostIdentity();
  watcher.links = std::exchange(options_.links, {});  // what wiring has left
  watcher.launcher = std::exchange(options_.launcher, {});
  watcher.heartbeat_seconds = options_.config.heartbeat_seconds;
  watcher.patience = {options_.config.peer_timeout_seconds, options_.config.stopped_timeout_seconds,
                      options_.config.start_timeout_seconds};
  watcher.signs = &link_signs_;
  // In an elastic job the ranks finish their step first, and save what they have.
  if (options_.config.elastic) watcher.orphan_seconds = 10.0;
  if (options_.links_on_demand) {
    watcher.ask_for_launcher = [this] {
      return link_requests_.Ask({GlobalRank(), LinkRole::kLauncher});
    };
  }
  watcher.stuck_without = [this](const Departure& departure, bool broken) {
    return StuckWithout(departure, broken);
  };
  watcher.on_heartbeat = [this] { OnHeartbeat(); };
  watcher.blocked_us = [this] { return BlockedMicros(); };
  watcher.on_show_stacks = [this] { stacks_.Ask(NowMicros()); };
  watcher.on_abort = [this] {
    wirer_->Interrupt();
    link_requests_.Close();
    cycle_->Lose();
    loop_->Poke();
    loop_->WakeAll();
  };
  watcher_.emplace(std::move(watcher), &abort_);
  return watcher_->Start();
}

}  // namespace hvd
