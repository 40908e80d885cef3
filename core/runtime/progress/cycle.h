#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "runtime/liveness/cause.h"
#include "runtime/operation/queue.h"
#include "runtime/peer/messages.h"
#include "runtime/progress/set_table.h"
#include "runtime/progress/stall_check.h"
#include "runtime/progress/waiting.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

struct CycleOptions {
  StallOptions stall;
  // A control link has ended: a failure unless its peer has left in good order.
  std::function<void(Cause cause)> on_end;
  // This rank cannot go on; the cause comes back through the abort cell. It needs no memory.
  std::function<void(Cause cause)> on_failure;
};

// The work of the engine, one round at a time. Belongs to the holder of the progress lock.
class Cycle {
 public:
  Cycle(GlobalRank rank, CycleOptions options, Queue* queue, AbortCell* abort);

  void Own(std::unique_ptr<Transport> transport) { transports_.push_back(std::move(transport)); }
  void Own(std::unique_ptr<peer::Messages> messages) { messages_ = std::move(messages); }
  void Own(std::unique_ptr<ProcessSet> set) {
    if (set->relays()) relays_.store(true);
    leads_ |= set->root() != nullptr;
    sets_.Add(std::move(set));
  }
  // Whether there has been a set in which this rank relays. Callable without the lock.
  bool relays() const { return relays_.load(); }
  // Lets go of a set on which nothing is in flight on any rank, once its last control bytes are
  // sent. Told of sets too that this rank does not belong to: the transports count on every id.
  void Dismiss(uint32_t id);

  // See Messages::Leave.
  void Leave(const HandlePtr& message, Status status) noexcept {
    if (messages_ != nullptr) messages_->Leave(message, std::move(status));
  }

  // Has `task` run at the start of the next round, before submissions are taken. Callable without
  // the lock.
  void Post(std::function<void()> task);

  // True when anything moved: another round may find more. A round that memory runs out in ends the
  // generation.
  bool Round() noexcept;

  // There is something that a round may move, now or when a peer acts. Callable without the lock.
  bool HasWork() const { return queue_->in_flight() > 0 || unsent_.load(); }

  // See Window::Arm.
  void Arm(bool sleeping);
  // What to sleep on besides the waker.
  void AddPollFds(PollSet* fds) const noexcept;
  // Until when, on the clock of NowMicros; -1 = no limit.
  int64_t Deadline() const;
  // How many rounds there have been. Callable without the lock.
  uint64_t rounds() const { return rounds_.load(std::memory_order_acquire); }
  // When the latest round began: a driver need not read the clock again.
  int64_t now_us() const { return now_us_; }
  // When submissions were last taken from the queue.
  int64_t drained_us() const { return drained_us_; }

  // Completed operations with a sink to call once the lock is released.
  HandleChain TakeFinished() noexcept;

  // The generation is lost, though perhaps nothing is in flight: a GPU may still be at work on what
  // is complete here. The next round with the cause set ends that. Callable without the lock.
  void Lose() { lost_.store(true); }

  // Fails everything in flight and lets go of user memory.
  void FailAll(const Status& status) noexcept;
  // What was sent gets up to `linger_us` to arrive.
  void Close(int64_t linger_us);

 private:
  bool Work();
  void RunTasks();
  bool Drain(int64_t now_us);
  void Route(const HandlePtr& handle);
  void Refuse(const HandlePtr& handle);
  bool ForgetIfIdle(ProcessSet& set);
  Status Tick(int64_t now_us, bool* moved);
  void LinkEnded(GlobalRank peer);
  void Broken(const Status& status);
  void RanOutOfMemory() noexcept;
  Cause OutOfMemoryNow() const;

  GlobalRank rank_;
  CycleOptions options_;
  Queue* queue_;
  AbortCell* abort_;
  StallCheck stalls_;
  // Destroyed in reverse: sets let go of transports first.
  std::vector<std::unique_ptr<Transport>> transports_;
  SetTable sets_;
  std::unique_ptr<peer::Messages> messages_;            // null: this rank knows no others yet
  std::vector<std::unique_ptr<ProcessSet>> dismissed_;  // bytes of theirs are still to be sent
  std::vector<HandlePtr> taken_;
  std::vector<HandlePtr> urged_;
  HandleChain finished_;    // those with a sink to call
  std::mutex tasks_mutex_;  // guards tasks_
  std::vector<std::function<void()>> tasks_;
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> unsent_{false};  // control bytes wait for room
  std::atomic<bool> lost_{false};
  std::atomic<bool> relays_{false};
  std::atomic<uint64_t> rounds_{0};
  const Cause out_of_memory_;
  bool broken_ = false;  // reported; the cause has not come back yet
  bool leads_ = false;   // there has been a set whose root is here
  int64_t now_us_ = 0;
  int64_t drained_us_ = 0;
  int64_t relay_us_ = 0;  // when the sets in which this rank only relays are looked at next
};

}  // namespace hvd
