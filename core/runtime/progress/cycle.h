#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/rank.h"
#include "runtime/liveness/cause.h"
#include "runtime/operation/queue.h"
#include "runtime/progress/process_set.h"
#include "runtime/progress/waiting.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

struct CycleOptions {
  int64_t stall_warning_us = 10000000;  // 0 = never
  int64_t stall_failure_us = 0;         // 0 = never
  int64_t deadlock_us = 0;              // the failure of a proved deadlock; 0 = never
  // For how long every rank of the job has been Blocked.
  std::function<int64_t()> everybody_blocked_us;
  std::function<void()> on_stall;  // a stall is reported for the first time
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
  void Own(std::unique_ptr<ProcessSet> set) { sets_.push_back(std::move(set)); }
  // Lets go of a set on which nothing is in flight on any rank, once its last control bytes are sent. Told of
  // sets too that this rank does not belong to: the transports count on every id.
  void Dismiss(uint32_t id);

  // Has `errand` run at the start of the next round, before submissions are taken. Callable without the lock.
  void Post(std::function<void()> errand);

  // True when anything moved: another round may find more. A round that memory runs out in ends the
  // generation.
  bool Round() noexcept;

  // There is something that a round may move, now or when a peer acts. Callable without the lock.
  bool HasWork() const { return queue_->in_flight() > 0 || unsent_.load(); }
  const std::vector<std::unique_ptr<Transport>>& transports() const { return transports_; }

  // See Window::Arm.
  void Arm(bool sleeping);
  // What to sleep on besides the waker.
  void AddPollFds(PollSet* fds) const noexcept;
  // Until when, on the clock of NowMicros; -1 = no limit.
  int64_t Deadline() const;
  // How many rounds there have been. Callable without the lock.
  uint64_t rounds() const { return rounds_.load(std::memory_order_acquire); }
  // When submissions were last taken from the queue.
  int64_t drained_us() const { return drained_us_; }

  // Completed operations with a sink to call once the lock is released.
  HandleChain TakeFinished() noexcept;

  // Fails everything in flight and lets go of user memory.
  void FailAll(const Status& status) noexcept;
  // What was sent gets up to `linger_us` to arrive.
  void Close(int64_t linger_us);

 private:
  bool Work();
  void RunErrands();
  bool Drain(int64_t now_us);
  void Route(const HandlePtr& handle);
  void Refuse(const HandlePtr& handle);
  void Fail(const HandlePtr& handle, Status status) noexcept;
  bool Bury(ProcessSet& set);
  Status Tick(int64_t now_us, bool* moved);
  void LinkEnded(GlobalRank peer);
  void Broken(const Status& status);
  void RanOutOfMemory() noexcept;
  Cause OutOfMemoryNow() const;
  void CheckStall(int64_t now_us);
  bool Warn(const negotiate::Sequencer& sequencer, int64_t now_us);
  void Judge(const negotiate::Sequencer& sequencer, int64_t now_us);
  ProcessSet* Find(uint32_t id);

  GlobalRank rank_;
  CycleOptions options_;
  Queue* queue_;
  AbortCell* abort_;
  // Destroyed in reverse: sets let go of transports first.
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<ProcessSet>> sets_;
  std::vector<std::unique_ptr<ProcessSet>> dismissed_;  // bytes of theirs are still to be sent
  std::vector<HandlePtr> taken_;
  std::vector<HandlePtr> urged_;
  HandleChain failed_;
  std::mutex errands_mutex_;  // guards errands_
  std::vector<std::function<void()>> errands_;
  std::atomic<bool> has_errands_{false};
  std::atomic<bool> unsent_{false};  // control bytes wait for room
  std::atomic<uint64_t> rounds_{0};
  const Cause out_of_memory_;
  bool broken_ = false;  // reported; the cause has not come back yet
  int64_t drained_us_ = 0;
  int64_t stall_period_us_ = 0;  // 0 = no check
  int64_t next_stall_check_us_ = 0;
  int64_t next_stall_warning_us_ = 0;
  int stall_warnings_ = 0;  // since something stalls
};

}  // namespace hvd
