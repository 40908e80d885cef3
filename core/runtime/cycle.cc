#include "runtime/cycle.h"

#include <algorithm>
#include <sstream>

#include "base/clock.h"
#include "base/log.h"
#include "negotiate/stall.h"

namespace hvd {

namespace {

void LogLines(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) Log(LogLevel::kWarning, line);
}

}  // namespace

Cycle::Cycle(int rank, CycleOptions options, Queue* queue, AbortCell* abort)
    : rank_(rank), options_(std::move(options)), queue_(queue), abort_(abort) {
  // Often enough that neither limit is overrun by more than a fifth.
  for (const int64_t limit : {options_.stall_warning_us, options_.stall_failure_us}) {
    if (limit > 0 && (stall_period_us_ == 0 || limit / 5 < stall_period_us_)) stall_period_us_ = limit / 5;
  }
}

bool Cycle::Round() {
  if (abort_->is_set()) {
    FailAll(abort_->status());
    return false;
  }
  if (broken_) return false;
  const int64_t now = NowMicros();
  bool moved = Drain(now);
  const Status status = Tick(now, &moved);
  if (!status.ok()) Broken(status);
  rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return moved;
}

bool Cycle::Drain(int64_t now_us) {
  if (!queue_->Take(&taken_, &urged_)) return false;
  drained_us_ = now_us;
  for (const HandlePtr& handle : taken_) Find(handle->entry.process_set)->Add(handle);
  for (const HandlePtr& handle : urged_) Find(handle->entry.process_set)->Urge(handle);
  taken_.clear();
  urged_.clear();
  return true;
}

Status Cycle::Tick(int64_t now_us, bool* moved) {
  bool unsent = false;
  for (auto& set : sets_) {
    HVD_RETURN_IF_ERROR(set->Tick(now_us, moved));
    unsent |= !set->idle();
  }
  // Last, so that everything that was just posted is known before anybody sleeps.
  for (auto& transport : transports_) {
    bool bytes_moved = false;
    HVD_RETURN_IF_ERROR(transport->Progress(&bytes_moved));
    *moved |= bytes_moved;
    for (int peer = transport->TakeEnded(); peer >= 0; peer = transport->TakeEnded()) {
      options_.on_failure(peer, "rank " + std::to_string(peer) + " closed its control link.");
    }
  }
  unsent_.store(unsent, std::memory_order_relaxed);
  if (stall_period_us_ > 0 && now_us >= next_stall_check_us_) CheckStall(now_us);
  return Status::Ok();
}

void Cycle::Broken(const Status& status) {
  broken_ = true;
  unsent_.store(false);
  int culprit = rank_;
  for (auto& transport : transports_) {
    if (transport->lost_peer() >= 0) culprit = transport->lost_peer();
  }
  options_.on_failure(culprit, status.message());
}

void Cycle::CheckStall(int64_t now_us) {
  const bool warns = options_.stall_warning_us > 0 && now_us >= next_stall_warning_us_;
  next_stall_check_us_ = now_us + stall_period_us_;
  if (warns) next_stall_warning_us_ = now_us + options_.stall_warning_us;
  for (auto& set : sets_) {
    if (set->sequencer() == nullptr) continue;
    const auto stalled = [&](int64_t since_us) {
      return negotiate::StallReport(*set->sequencer(), now_us, since_us);
    };
    if (warns) LogLines(stalled(options_.stall_warning_us));
    if (options_.stall_failure_us == 0) continue;
    const std::string report = stalled(options_.stall_failure_us);
    if (!report.empty()) options_.on_failure(rank_, report);
  }
}

void Cycle::Arm(bool sleeping) {
  for (auto& window : windows_) window->Arm(sleeping);
}

void Cycle::AddPollFds(std::vector<pollfd>* fds) const {
  if (broken_) return;  // nothing will read them: only the waker says more
  for (const auto& transport : transports_) {
    if (transport->poll_fd() >= 0) fds->push_back({transport->poll_fd(), POLLIN, 0});
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

std::vector<HandlePtr> Cycle::TakeFinished() {
  std::vector<HandlePtr> finished;
  finished.swap(failed_);
  for (auto& set : sets_) {
    if (!set->executor().finished()) continue;
    for (HandlePtr& handle : set->executor().TakeFinished()) finished.push_back(std::move(handle));
  }
  return finished;
}

void Cycle::FailAll(const Status& status) {
  unsent_.store(false);
  if (queue_->in_flight() == 0) return;
  // Nothing may touch user memory once its handle is done.
  for (auto& transport : transports_) transport->Close();
  for (auto& set : sets_) set->executor().Abandon();
  queue_->Take(&taken_, &urged_);
  for (const HandlePtr& handle : queue_->InFlight()) {
    queue_->Forget(*handle);
    handle->status = Status(status.code(), "'" + handle->name() + "' was not completed: " + status.message());
    if (handle->entry.on_complete) failed_.push_back(handle);
    handle->done.store(true, std::memory_order_release);
  }
  taken_.clear();
  urged_.clear();
}

void Cycle::Close() {
  for (auto& transport : transports_) transport->Close();
  sets_.clear();
  transports_.clear();
  windows_.clear();
}

ProcessSet* Cycle::Find(uint32_t id) {
  const auto found =
      std::find_if(sets_.begin(), sets_.end(), [id](const auto& set) { return set->id() == id; });
  return found->get();
}

}  // namespace hvd
