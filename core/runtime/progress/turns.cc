#include "runtime/progress/turns.h"

namespace hvd {

FutexWait Turns::Await(uint32_t number, const Handle& handle, int64_t timeout_us) noexcept {
  Sleeper self{&handle};
  if (!List(number, &self)) return FutexWait::kWoken;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // WakeDone has the other half
  FutexWait result = FutexWait::kWoken;
  if (!handle.done.load(std::memory_order_acquire)) result = WaitOnFutex(self.woken, 0, timeout_us);
  if (self.woken.load(std::memory_order_acquire) != 0) return FutexWait::kWoken;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (self.woken.load(std::memory_order_relaxed) != 0) return FutexWait::kWoken;
  Unlist(&self);
  return result;
}

// Who leaves passes the turn after it has let go of the lock: so whoever found it taken before is
// listed by then, or sees the new number. It is counted before it looks: Pass changes the number
// and then looks at the count, so that one of the two sees the other.
bool Turns::List(uint32_t number, Sleeper* sleeper) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1);
  if (number_.load() != number) {
    sleepers_.fetch_sub(1);
    return false;
  }
  sleeper->previous = last_;
  (last_ == nullptr ? first_ : last_->next) = sleeper;
  last_ = sleeper;
  return true;
}

void Turns::Unlist(Sleeper* sleeper) noexcept {
  (sleeper->previous == nullptr ? first_ : sleeper->previous->next) = sleeper->next;
  (sleeper->next == nullptr ? last_ : sleeper->next->previous) = sleeper->previous;
  sleepers_.fetch_sub(1);
}

// The sleeper may be gone before the call, which does no more than name its word.
void Turns::Wake(Sleeper* sleeper) noexcept {
  Unlist(sleeper);
  const std::atomic<uint32_t>& word = sleeper->woken;
  sleeper->woken.store(1, std::memory_order_release);
  WakeFutex(word);
}

void Turns::Pass() noexcept {
  number_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (first_ != nullptr) Wake(first_);
}

void Turns::WakeDone() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // between what has ended and who sleeps
  if (sleepers_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Sleeper* at = first_; at != nullptr;) {
    Sleeper* const next = at->next;
    if (at->handle->done.load(std::memory_order_acquire)) Wake(at);
    at = next;
  }
}

void Turns::WakeAll() noexcept {
  number_.fetch_add(1);
  const std::lock_guard<std::mutex> lock(mutex_);
  while (first_ != nullptr) Wake(first_);
}

}  // namespace hvd
