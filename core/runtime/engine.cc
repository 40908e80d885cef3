#include "runtime/engine.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/failpoint.h"
#include "runtime/check.h"
#include "runtime/loop.h"
#include "runtime/watcher.h"
#include "runtime/wiring.h"
#include "trace/timeline.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
// How long an operation may wait for a member that has left, before that counts as a failure.
constexpr int64_t kDepartureGraceUs = kSecond;
constexpr int64_t kFlushLimitUs = kSecond;
constexpr size_t kMostCachedIds = 1 << 20;
constexpr char kShutdownReason[] =
    "Horovod has been shut down, by shutdown() or the end of the program, while the operation was in flight.";

int64_t CycleMicros(const Config& config) { return static_cast<int64_t>(config.cycle_time_ms * 1000); }

LoopOptions LoopOptionsFor(const EngineOptions& options, int cores) {
  LoopOptions loop;
  // A waiter is its rank's runnable thread; the background thread is one more, beside the program's.
  loop.waiter_spin_us = cores >= options.local_size ? 100 : 0;
  loop.background_spin_us = cores > options.local_size ? 20 : 0;
  loop.collect_us = std::min<int64_t>(loop.collect_us, CycleMicros(options.config));
  const std::vector<int>& cores_wanted = options.config.thread_affinity;
  const auto local_rank = static_cast<size_t>(options.local_rank);
  if (local_rank < cores_wanted.size()) loop.core = cores_wanted[local_rank];
  return loop;
}

class RankEngine : public Engine {
 public:
  explicit RankEngine(EngineOptions options) : options_(std::move(options)) {
    std::vector<int> everybody(options_.size);
    std::iota(everybody.begin(), everybody.end(), 0);
    sets_.push_back(std::move(everybody));
    sets_.insert(sets_.end(), options_.process_sets.begin(), options_.process_sets.end());
  }

  ~RankEngine() override {
    Shutdown();
    for (const Link& link : options_.links) close(link.fd);
    if (options_.launcher_fd >= 0) close(options_.launcher_fd);
  }

  Status Start();

  Status Submit(Entry entry, HandlePtr* handle) override;
  Status Wait(const HandlePtr& handle, int64_t timeout_us, bool (*interrupted)()) override;
  void Shutdown() override;
  Status StartTimeline(const std::string& path, bool mark_cycles) override;
  Status StopTimeline() override { return timeline_ == nullptr ? Status::Ok() : timeline_->Stop(); }
  std::map<std::string, uint64_t> CountersNow() const override;
  std::vector<int> Descriptors() const override { return descriptors_; }

 private:
  Status OpenTimeline();
  void MakeCycle(Wired* wired);
  ProcessSetOptions SetOptions(uint32_t id) const;
  void MakeWatcher(std::vector<Link> links);
  bool Sequences() const;
  std::string StuckWithout(const Departure& departure);
  Status Usable(const Entry& entry) const;
  void Flush();
  void FailWhatIsLeft();

  EngineOptions options_;
  std::vector<std::vector<int>> sets_;           // members by set id; constant
  std::vector<int> descriptors_;                 // constant once started
  std::map<int, uint64_t> rounds_at_departure_;  // by rank; the watcher's thread's
  AbortCell abort_;
  Counters counters_;
  Queue queue_;
  Waker waker_;
  std::unique_ptr<Timeline> timeline_;  // null unless asked for
  std::unique_ptr<Cycle> cycle_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Watcher> watcher_;
  std::atomic<bool> shut_down_{false};
};

Status RankEngine::Start() {
  HVD_RETURN_IF_ERROR(failpoint::Arm(options_.config.failpoint, options_.rank));
  HVD_RETURN_IF_ERROR(OpenTimeline());
  Wired wired;
  for (const Link& link : options_.links) descriptors_.push_back(link.fd);
  descriptors_.push_back(waker_.fd());
  if (options_.launcher_fd >= 0) descriptors_.push_back(options_.launcher_fd);
  HVD_RETURN_IF_ERROR(Wire(&options_, sets_, waker_, &wired));
  MakeCycle(&wired);
  loop_ = std::make_unique<Loop>(LoopOptionsFor(options_, wired.cores), cycle_.get(), &queue_, &waker_,
                                 &counters_);
  MakeWatcher(std::move(wired.watch));
  return Status::Ok();
}

// Rank 0 writes; the other ranks can be asked to later.
Status RankEngine::OpenTimeline() {
  const std::string& path = options_.config.timeline;
  if (path.empty()) return Status::Ok();
  timeline_ = std::make_unique<Timeline>(options_.rank);
  if (path == "DYNAMIC" || options_.rank != 0) return Status::Ok();
  return timeline_->Start(path, options_.config.timeline_mark_cycles);
}

Status RankEngine::StartTimeline(const std::string& path, bool mark_cycles) {
  if (timeline_ != nullptr) return timeline_->Start(path, mark_cycles);
  return Status::Invalid("Set HOROVOD_TIMELINE=DYNAMIC before hvd.init() to start a timeline later.");
}

ProcessSetOptions RankEngine::SetOptions(uint32_t id) const {
  const Config& config = options_.config;
  ProcessSetOptions set;
  set.id = id;
  set.members = sets_[id];
  set.rank = options_.rank;
  set.fusion_threshold = config.fusion_threshold;
  // Every id costs memory for good; a program of ever new names must not grow without bound.
  set.cache_capacity =
      config.cache_capacity < 0 ? kMostCachedIds : static_cast<size_t>(config.cache_capacity);
  set.sequencer.silence = std::min<int64_t>(set.sequencer.silence, CycleMicros(config));
  set.sequencer.urgent_silence = std::min(set.sequencer.silence, set.sequencer.urgent_silence);
  if (config.fusion_threshold > 0) {
    set.sequencer.batch_bytes = std::min(set.sequencer.batch_bytes, config.fusion_threshold);
  }
  return set;
}

void RankEngine::MakeCycle(Wired* wired) {
  CycleOptions cycle;
  const Config& config = options_.config;
  cycle.stall_warning_us =
      config.stall_check_disable ? 0 : static_cast<int64_t>(config.stall_check_seconds * kSecond);
  cycle.stall_failure_us = static_cast<int64_t>(config.stall_shutdown_seconds * kSecond);
  cycle.on_failure = [this](int culprit, std::string reason) {
    watcher_->Suspect(culprit, std::move(reason));
  };
  cycle_ = std::make_unique<Cycle>(options_.rank, cycle, &queue_, &abort_);
  for (auto& window : wired->windows) cycle_->Own(std::move(window));
  for (auto& transport : wired->transports) cycle_->Own(std::move(transport));
  for (size_t id = 0; id < wired->sets.size(); ++id) {
    Wired::Set& set = wired->sets[id];
    if (set.control == nullptr) continue;
    cycle_->Own(std::make_unique<ProcessSet>(SetOptions(static_cast<uint32_t>(id)), std::move(set.control),
                                             std::move(set.backend), &queue_, &counters_, timeline_.get()));
  }
}

void RankEngine::MakeWatcher(std::vector<Link> links) {
  WatcherOptions watcher;
  watcher.generation = options_.generation;
  watcher.rank = options_.rank;
  watcher.links = std::move(links);
  watcher.launcher_fd = std::exchange(options_.launcher_fd, -1);
  watcher.heartbeat_seconds = options_.config.heartbeat_seconds;
  watcher.timeout_seconds = options_.config.peer_timeout_seconds;
  watcher.stuck_without = [this](const Departure& departure) { return StuckWithout(departure); };
  watcher.on_heartbeat = [this] {
    if (options_.size > 1 && Sequences()) loop_->Poke();
  };
  watcher.on_abort = [this] { loop_->WakeAll(); };
  watcher_ = std::make_unique<Watcher>(std::move(watcher), &abort_);
  watcher_->Start();
}

bool RankEngine::Sequences() const {
  return std::any_of(sets_.begin(), sets_.end(),
                     [this](const auto& set) { return set.front() == options_.rank; });
}

// Called from the watcher's thread.
std::string RankEngine::StuckWithout(const Departure& departure) {
  const auto [first, _] = rounds_at_departure_.emplace(departure.rank, cycle_->rounds());
  // Whatever the leaver sent before it left has been looked at since?
  if (cycle_->rounds() < first->second + 2) return "";
  const int64_t now = NowMicros();
  for (const HandlePtr& handle : queue_.InFlight()) {
    const std::vector<int>& members = sets_[handle->entry.process_set];
    const bool concerned = std::find(members.begin(), members.end(), departure.rank) != members.end();
    // What all have agreed on goes on without a leaver that has completed its own part.
    const bool needed = departure.abandoned || !handle->decided.load();
    const int64_t since = std::max(handle->submitted_us, departure.since_us);
    if (!concerned || !needed || now - since < kDepartureGraceUs) continue;
    return "rank " + std::to_string(options_.rank) + " waits for '" + handle->name() + "'.";
  }
  return "";
}

Status RankEngine::Usable(const Entry& entry) const {
  if (shut_down_.load()) return {Code::kShutdown, "Horovod has been shut down. Call hvd.init() first."};
  if (abort_.is_set()) return abort_.status();
  if (entry.process_set >= sets_.size()) {
    return Status::Invalid("process set " + std::to_string(entry.process_set) + " does not exist");
  }
  const std::vector<int>& members = sets_[entry.process_set];
  if (std::find(members.begin(), members.end(), options_.rank) == members.end()) {
    return Status::Invalid("rank " + std::to_string(options_.rank) + " does not belong to process set " +
                           std::to_string(entry.process_set));
  }
  return CheckEntry(entry);
}

Status RankEngine::Submit(Entry entry, HandlePtr* handle) {
  HVD_RETURN_IF_ERROR(Usable(entry));
  const bool urgent = entry.urgent;
  *handle = std::make_shared<Handle>(std::move(entry));
  (*handle)->generation = options_.generation;
  (*handle)->submitted_us = NowMicros();
  HVD_RETURN_IF_ERROR(queue_.Push(*handle));
  if (!urgent) loop_->Notify();           // an urgent one is driven by its submitter
  if (abort_.is_set()) FailWhatIsLeft();  // it came in between
  return Status::Ok();
}

Status RankEngine::Wait(const HandlePtr& handle, int64_t timeout_us, bool (*interrupted)()) {
  const int64_t deadline = timeout_us < 0 ? -1 : NowMicros() + timeout_us;
  if (!handle->done.load(std::memory_order_acquire) && !handle->entry.urgent) queue_.Urge(handle);
  while (!handle->done.load(std::memory_order_acquire)) {
    const int64_t left = deadline < 0 ? -1 : std::max<int64_t>(0, deadline - NowMicros());
    const Waited waited = loop_->Wait(*handle, left);
    if (waited == Waited::kDone) break;
    const bool stop = waited == Waited::kTimeout || (interrupted != nullptr && interrupted());
    if (stop) return {Code::kTimeout, "'" + handle->name() + "' is not complete yet"};
  }
  return handle->status;
}

// The last responses to slower peers may still wait for room.
void RankEngine::Flush() {
  const std::unique_lock<std::mutex> lock(loop_->progress(), std::try_to_lock);
  if (!lock.owns_lock()) return;  // a waiter drives
  const int64_t deadline = NowMicros() + kFlushLimitUs;
  while (cycle_->HasWork() && queue_.in_flight() == 0 && !abort_.is_set() && NowMicros() < deadline) {
    if (!cycle_->Round()) usleep(50);
  }
}

void RankEngine::Shutdown() {
  if (shut_down_.exchange(true) || loop_ == nullptr) return;
  loop_->Stop();
  Flush();
  // The goodbye comes before any link closes: peers must not take the leaver for lost.
  watcher_->Stop(queue_.in_flight() > 0);
  // Whoever waits sees this as the cause, fails what is in flight and releases the progress lock.
  abort_.Set(options_.rank, kShutdownReason);
  loop_->WakeAll();
  FailWhatIsLeft();
  const std::lock_guard<std::mutex> lock(loop_->progress());
  cycle_->Close();
  (void)StopTimeline();
}

void RankEngine::FailWhatIsLeft() {
  std::vector<HandlePtr> finished;
  {
    const std::lock_guard<std::mutex> lock(loop_->progress());
    cycle_->FailAll(abort_.status());
    finished = cycle_->TakeFinished();
  }
  loop_->WakeAll();  // nobody drove, so nobody else tells the waiters
  for (const HandlePtr& handle : finished) handle->entry.on_complete(handle->status);
}

std::map<std::string, uint64_t> RankEngine::CountersNow() const {
  return {{"collectives", counters_.collectives},
          {"tensors", counters_.tensors},
          {"bytes", counters_.bytes},
          {"cache_hits", counters_.cache_hits},
          {"cache_misses", counters_.cache_misses},
          {"responses", counters_.responses},
          {"wakeups", counters_.wakeups},
          {"control_messages", counters_.control_messages}};
}

}  // namespace

Status Engine::Make(EngineOptions options, std::unique_ptr<Engine>* engine) {
  auto made = std::make_unique<RankEngine>(std::move(options));
  HVD_RETURN_IF_ERROR(made->Start());
  *engine = std::move(made);
  return Status::Ok();
}

}  // namespace hvd
