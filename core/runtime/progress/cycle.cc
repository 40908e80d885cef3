#include "runtime/progress/cycle.h"

#include <algorithm>
#include <new>
#include <sstream>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "negotiate/stall.h"

namespace hvd {

namespace {

constexpr int kMostBackOff = 5;

// "'x' was not completed: ..."; the reason alone where there is no memory for more.
Status NotCompleted(const Handle& handle, const Status& why) noexcept {
  try {
    return {why.code(), "'" + Shown(handle.name()) + "' was not completed: " + why.message()};
  } catch (const std::bad_alloc&) {
    return why;
  }
}

void LogLines(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) Log(LogLevel::kWarning, line);
}

}  // namespace

Cycle::Cycle(GlobalRank rank, CycleOptions options, Queue* queue, AbortCell* abort)
    : rank_(rank),
      options_(std::move(options)),
      queue_(queue),
      abort_(abort),
      out_of_memory_(OutOfMemory(rank, "negotiated and carried out operations")) {
  // Often enough that neither limit is overrun by more than a fifth.
  for (const int64_t limit : {options_.stall_warning_us, options_.stall_failure_us, options_.deadlock_us}) {
    if (limit > 0 && (stall_period_us_ == 0 || limit / 5 < stall_period_us_)) stall_period_us_ = limit / 5;
  }
}

bool Cycle::Round() noexcept {
  if (abort_->is_set()) {
    FailAll(abort_->status());
    return false;
  }
  if (broken_) return false;
  try {
    return Work();
  } catch (const std::bad_alloc&) {
    RanOutOfMemory();
    return false;
  }
}

bool Cycle::Work() {
  if (has_errands_.load(std::memory_order_acquire)) RunErrands();
  const int64_t now = NowMicros();
  bool moved = Drain(now);
  const Status status = Tick(now, &moved);
  if (!status.ok()) Broken(status);
  rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return moved;
}

void Cycle::Post(std::function<void()> errand) {
  const std::lock_guard<std::mutex> lock(errands_mutex_);
  errands_.push_back(std::move(errand));
  has_errands_.store(true, std::memory_order_release);
}

void Cycle::RunErrands() {
  std::vector<std::function<void()>> errands;
  {
    const std::lock_guard<std::mutex> lock(errands_mutex_);
    errands.swap(errands_);
    has_errands_.store(false, std::memory_order_relaxed);
  }
  for (const auto& errand : errands) errand();
}

void Cycle::Dismiss(uint32_t id) {
  const auto found =
      std::find_if(sets_.begin(), sets_.end(), [id](const auto& set) { return set->id() == id; });
  if (found == sets_.end()) {
    for (auto& transport : transports_) transport->Forget(id);
    return;
  }
  // What another thread submitted at the very moment of the removal.
  (*found)->executor().Abandon();
  for (const HandlePtr& handle : queue_->InFlight(id)) Refuse(handle);
  queue_->DropSet(id);
  dismissed_.push_back(std::move(*found));
  sets_.erase(found);
}

// Whether a dismissed set has said its last word; what comes for it from now on is dropped.
bool Cycle::Bury(ProcessSet& set) {
  if (!set.idle()) return false;
  for (auto& transport : transports_) transport->Forget(set.id());
  return true;
}

bool Cycle::Drain(int64_t now_us) {
  if (!queue_->Take(&taken_, &urged_)) return false;
  drained_us_ = now_us;
  for (const HandlePtr& handle : taken_) Route(handle);
  for (const HandlePtr& handle : urged_) {
    if (ProcessSet* set = Find(handle->entry.process_set)) set->Urge(handle);
  }
  taken_.clear();
  urged_.clear();
  return true;
}

void Cycle::Route(const HandlePtr& handle) {
  if (ProcessSet* set = Find(handle->entry.process_set)) return set->Add(handle);
  Refuse(handle);
}

// Submitted by one thread while another removed the set.
void Cycle::Refuse(const HandlePtr& handle) {
  Status status =
      Status::Invalid("'" + Shown(handle->name()) + "' was submitted to a process set that was removed");
  queue_->Forget(handle.get());
  queue_->DropSet(handle->entry.process_set);
  Fail(handle, std::move(status));
}

// What the queue has forgotten.
void Cycle::Fail(const HandlePtr& handle, Status status) noexcept {
  handle->status = std::move(status);
  if (handle->entry.on_complete) failed_.Append(handle);
  handle->done.store(true, std::memory_order_release);
}

Status Cycle::Tick(int64_t now_us, bool* moved) {
  bool unsent = false;
  for (auto& set : sets_) {
    HVD_RETURN_IF_ERROR(set->Tick(now_us, moved));
    unsent |= !set->idle();
  }
  for (size_t i = dismissed_.size(); i-- > 0;) {
    unsent |= !dismissed_[i]->idle();
    dismissed_[i]->Flush(moved);
    if (Bury(*dismissed_[i])) dismissed_.erase(dismissed_.begin() + static_cast<int64_t>(i));
  }
  // Last, so that everything that was just posted is known before anybody sleeps.
  for (auto& transport : transports_) {
    bool bytes_moved = false;
    HVD_RETURN_IF_ERROR(transport->Progress(&bytes_moved));
    *moved |= bytes_moved;
    for (GlobalRank peer = transport->TakeEnded(); peer.known(); peer = transport->TakeEnded()) {
      LinkEnded(peer);
    }
  }
  unsent_.store(unsent, std::memory_order_relaxed);
  if (stall_period_us_ > 0 && now_us >= next_stall_check_us_) CheckStall(now_us);
  return Status::Ok();
}

void Cycle::Broken(const Status& status) {
  broken_ = true;
  unsent_.store(false);
  Cause cause;
  cause.reason = status.text();
  if (status.code() == Code::kUnavailable) {
    cause.culprit = rank_;
    cause.reason = Name(rank_) + " cannot go on: " + status.message();
  }
  for (const auto& set : sets_) {
    if (!set->culprit()) continue;
    cause.culprit = *set->culprit();
    if (cause.culprit.known()) cause.kind = CauseKind::kCorrupt;
  }
  for (size_t i = 0; i < transports_.size(); ++i) {
    if (!transports_[i]->lost_peer().known()) continue;
    cause.kind = transports_[i]->lost_to_corruption() ? CauseKind::kCorrupt : CauseKind::kLink;
    cause.culprit = transports_[i]->lost_peer();
    cause.link = i == 0 ? LinkRole::kControl : LinkRole::kData;
  }
  options_.on_failure(std::move(cause));
}

// The watcher tells everybody; until then this rank does nothing more.
void Cycle::RanOutOfMemory() noexcept {
  broken_ = true;
  unsent_.store(false);
  Cause cause = out_of_memory_;
  try {
    cause = OutOfMemoryNow();
  } catch (const std::bad_alloc&) {
    // It says less then.
  }
  options_.on_failure(std::move(cause));
}

Cause Cycle::OutOfMemoryNow() const {
  for (const auto& set : sets_) {
    const std::string running = set->executor().Running();
    if (!running.empty()) return OutOfMemory(rank_, ("carried out the " + running).c_str());
  }
  return out_of_memory_;
}

// Of a control link: the only one that may end before its peer is missed.
void Cycle::LinkEnded(GlobalRank peer) {
  Cause cause;
  cause.kind = CauseKind::kLink;
  cause.culprit = peer;
  cause.link = LinkRole::kControl;
  cause.reason = Name(rank_) + " saw it end";
  options_.on_end(std::move(cause));
}

void Cycle::CheckStall(int64_t now_us) {
  next_stall_check_us_ = now_us + stall_period_us_;
  bool stalled = false;
  for (auto& set : sets_) {
    if (set->sequencer() == nullptr) continue;
    if (options_.stall_warning_us > 0) stalled |= Warn(*set->sequencer(), now_us);
    Judge(*set->sequencer(), now_us);
    const std::string straggler = set->sequencer()->TakeStraggler(now_us);
    if (!straggler.empty()) Log(LogLevel::kWarning, straggler);
  }
  if (!stalled) {
    next_stall_warning_us_ = 0;
    stall_warnings_ = 0;
  } else if (now_us >= next_stall_warning_us_) {
    // What goes on for long is said less and less often.
    stall_warnings_ = std::min(stall_warnings_ + 1, kMostBackOff);
    next_stall_warning_us_ = now_us + (options_.stall_warning_us << (stall_warnings_ - 1));
  }
}

// Whether something is stalled; says so when it is time to.
bool Cycle::Warn(const negotiate::Sequencer& sequencer, int64_t now_us) {
  const std::string report = negotiate::StallReport(sequencer, now_us, options_.stall_warning_us);
  if (report.empty() || now_us < next_stall_warning_us_) return !report.empty();
  LogLines(report);
  if (stall_warnings_ == 0) options_.on_stall();
  return true;
}

// Ends the job when a stall has lasted too long, or is a proved deadlock.
void Cycle::Judge(const negotiate::Sequencer& sequencer, int64_t now_us) {
  const auto fail = [&](const std::string& introduction, int64_t limit_us) {
    Cause cause;
    cause.kind = CauseKind::kStall;
    const std::string report = limit_us > 0 ? negotiate::StallReport(sequencer, now_us, limit_us) : "";
    if (report.empty()) return false;
    cause.reason = introduction + report;
    const std::vector<GlobalRank> absent = negotiate::AbsentFromAll(sequencer, now_us, limit_us);
    if (absent.size() == 1) cause.culprit = absent.front();
    options_.on_failure(std::move(cause));
    return true;
  };
  if (fail("", options_.stall_failure_us)) return;
  if (options_.deadlock_us == 0 || options_.everybody_blocked_us() < options_.deadlock_us) return;
  fail("deadlock: every rank waits in the library, so nobody can submit what is missing.\n",
       options_.deadlock_us);
}

void Cycle::Arm(bool sleeping) {
  for (auto& set : sets_) {
    if (set->window() != nullptr) set->window()->Arm(sleeping);
  }
}

void Cycle::AddPollFds(PollSet* fds) const noexcept {
  if (broken_) return;  // nothing will read them: only the waker says more
  for (const auto& transport : transports_) {
    if (transport->poll_fd() >= 0) fds->Add(transport->poll_fd());
  }
}

int64_t Cycle::Deadline() const {
  if (broken_) return -1;
  int64_t earliest = -1;
  const auto consider = [&earliest](int64_t deadline) {
    if (deadline >= 0 && (earliest < 0 || deadline < earliest)) earliest = deadline;
  };
  for (const auto& set : sets_) {
    consider(set->Deadline());
    if (set->sequencer() != nullptr && stall_period_us_ > 0) consider(next_stall_check_us_);
  }
  return earliest;
}

HandleChain Cycle::TakeFinished() noexcept {
  HandleChain finished = std::move(failed_);
  for (auto& set : sets_) finished.Append(set->executor().TakeFinished());
  return finished;
}

void Cycle::FailAll(const Status& status) noexcept {
  unsent_.store(false);
  if (queue_->in_flight() == 0) return;
  // Nothing may touch user memory once its handle is done.
  for (auto& transport : transports_) transport->Close(0);
  for (auto& set : sets_) set->executor().Abandon();
  queue_->Take(&taken_, &urged_);
  while (const HandlePtr handle = queue_->ForgetOldest()) Fail(handle, NotCompleted(*handle, status));
  taken_.clear();
  urged_.clear();
}

void Cycle::Close(int64_t linger_us) {
  for (auto& transport : transports_) transport->Close(linger_us);
  {
    const std::lock_guard<std::mutex> lock(errands_mutex_);
    errands_.clear();
  }
  sets_.clear();
  dismissed_.clear();
  transports_.clear();
}

ProcessSet* Cycle::Find(uint32_t id) {
  const auto found =
      std::find_if(sets_.begin(), sets_.end(), [id](const auto& set) { return set->id() == id; });
  return found == sets_.end() ? nullptr : found->get();
}

}  // namespace hvd
