#include "runtime/progress/cycle.h"

#include <new>
#include <string>

#include "base/clock.h"
#include "base/text.h"

namespace hvd {

namespace {

// Reports of stalls need what others tell this rank in sets in which it does nothing itself; no
// heartbeat comes without such a look.
constexpr int64_t kRelayPeriodUs = 500'000;

// "'x' was not completed: ..."; the reason alone where there is no memory for more.
Status NotCompleted(const Handle& handle, const Status& why) noexcept {
  try {
    return {why.code(), "'" + Shown(handle.name()) + "' was not completed: " + why.message()};
  } catch (const std::bad_alloc&) {
    return why;
  }
}

}  // namespace

Cycle::Cycle(GlobalRank rank, CycleOptions options, Queue* queue, AbortCell* abort)
    : rank_(rank),
      options_(std::move(options)),
      queue_(queue),
      abort_(abort),
      stalls_(options_.stall),
      out_of_memory_(OutOfMemory(rank, "negotiated and carried out operations")) {}

bool Cycle::Round() noexcept {
  now_us_ = NowMicros();
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
  bool moved = has_tasks_.load(std::memory_order_acquire);  // they may end operations
  if (moved) RunTasks();
  moved |= Drain(now_us_);
  const Status status = Tick(now_us_, &moved);
  if (!status.ok()) Broken(status);
  rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return moved;
}

void Cycle::Post(std::function<void()> task) {
  const std::lock_guard<std::mutex> lock(tasks_mutex_);
  tasks_.push_back(std::move(task));
  has_tasks_.store(true, std::memory_order_release);
}

void Cycle::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) task();
}

void Cycle::Dismiss(uint32_t id) {
  queue_->DropSet(id);
  if (messages_ != nullptr) messages_->Forget(id);
  std::unique_ptr<ProcessSet> set = sets_.Remove(id);
  if (set == nullptr) {
    for (auto& transport : transports_) transport->Forget(id);
    return;
  }
  dismissed_.push_back(std::move(set));
}

// Whether a dismissed set has nothing left to send; what comes for it from now on is dropped.
bool Cycle::ForgetIfIdle(ProcessSet& set) {
  if (!set.idle()) return false;
  for (auto& transport : transports_) transport->Forget(set.id());
  return true;
}

bool Cycle::Drain(int64_t now_us) {
  if (!queue_->Take(&taken_, &urged_)) return false;
  drained_us_ = now_us;
  for (const HandlePtr& handle : taken_) Route(handle);
  for (const HandlePtr& handle : urged_) {
    if (handle->entry.peer) continue;
    if (ProcessSet* set = sets_.Find(handle->entry.process_set)) set->Urge(handle);
  }
  taken_.clear();
  urged_.clear();
  return true;
}

void Cycle::Route(const HandlePtr& handle) {
  ProcessSet* const set = sets_.Find(handle->entry.process_set);
  if (set == nullptr) return Refuse(handle);
  if (handle->entry.peer) return messages_->Add(handle);
  sets_.Activate(set);
  set->Add(handle);
}

// Submitted by one thread while another removed the set.
void Cycle::Refuse(const HandlePtr& handle) {
  Status status = Status::Invalid("'" + Shown(handle->name()) +
                                  "' was submitted to a process set that was removed");
  queue_->Forget(handle.get());
  queue_->DropSet(handle->entry.process_set);
  EndOperation(handle, std::move(status), &finished_);
}

Status Cycle::Tick(int64_t now_us, bool* moved) {
  if (relays() && now_us >= relay_us_) {
    relay_us_ = now_us + kRelayPeriodUs;
    sets_.ActivateRelays();
    *moved = true;  // a driver that is about to sleep has not armed them
  }
  bool unsent = false;
  for (ProcessSet* set : sets_.active()) {
    set->moved = false;
    const Status status = set->Tick(now_us, &set->moved);
    *moved |= set->moved;
    finished_.Append(set->executor().TakeFinished());
    HVD_RETURN_IF_ERROR(status);
    unsent |= !set->idle();
  }
  sets_.Retire();
  for (size_t i = dismissed_.size(); i-- > 0;) {
    unsent |= !dismissed_[i]->idle();
    dismissed_[i]->Flush(moved);
    if (ForgetIfIdle(*dismissed_[i]))
      dismissed_.erase(dismissed_.begin() + static_cast<int64_t>(i));
  }
  if (messages_ != nullptr) {
    HVD_RETURN_IF_ERROR(messages_->Progress(moved));
    unsent |= !messages_->idle();
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
  stalls_.Look(sets_, now_us);
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
  bool says_who = cause.culprit.known();
  for (const auto& [id, set] : sets_.all()) {
    if (!set->culprit()) continue;
    says_who = true;
    cause.culprit = *set->culprit();
    if (cause.culprit.known()) cause.kind = CauseKind::kCorrupt;
  }
  for (size_t i = 0; i < transports_.size(); ++i) {
    if (!transports_[i]->lost_peer().known()) continue;
    says_who = true;
    cause.kind = transports_[i]->lost_to_corruption() ? CauseKind::kCorrupt : CauseKind::kLink;
    cause.culprit = transports_[i]->lost_peer();
    cause.link = i == 0 ? LinkRole::kControl : LinkRole::kData;
  }
  // As of a library, which does not know whose fault it was: who has seen it is all there is.
  if (!says_who) cause.reason = Name(rank_) + ": " + status.message();
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
  for (ProcessSet* set : sets_.active()) {
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

void Cycle::Arm(bool sleeping) {
  for (ProcessSet* set : sets_.active()) {
    if (set->window() != nullptr) set->window()->Arm(sleeping);
  }
  if (messages_ != nullptr) messages_->Arm(sleeping);
}

void Cycle::AddPollFds(PollSet* fds) const noexcept {
  if (broken_) return;  // nothing will read them: only the waker says more
  for (const auto& transport : transports_) {
    if (transport->poll_fd() >= 0) fds->Add(transport->poll_fd());
  }
}

int64_t Cycle::Deadline() const {
  if (broken_) return -1;
  int64_t earliest = leads_ ? stalls_.Deadline() : -1;
  for (const ProcessSet* set : sets_.active()) earliest = Earlier(earliest, set->Deadline());
  return earliest;
}

HandleChain Cycle::TakeFinished() noexcept {
  HandleChain finished = std::move(finished_);
  if (messages_ != nullptr) finished.Append(messages_->TakeFinished());
  return finished;
}

void Cycle::FailAll(const Status& status) noexcept {
  unsent_.store(false);
  const bool lost = lost_.exchange(false);
  if (queue_->in_flight() == 0 && !lost) return;
  // Nothing may touch user memory once its handle is done.
  if (queue_->in_flight() > 0) {
    for (auto& transport : transports_) transport->Close(0);
  }
  for (const auto& [id, set] : sets_.all()) set->executor().Abandon();
  for (auto& set : dismissed_) set->executor().Abandon();
  if (messages_ != nullptr) messages_->Abandon();
  while (const HandlePtr handle = queue_->ForgetOldest())
    EndOperation(handle, NotCompleted(*handle, status), &finished_);
  queue_->Discard();
  taken_.clear();
  urged_.clear();
}

void Cycle::Close(int64_t linger_us) {
  for (auto& transport : transports_) transport->Close(linger_us);
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks_.clear();
  }
  messages_.reset();
  sets_.Clear();
  dismissed_.clear();
  transports_.clear();
}

}  // namespace hvd
