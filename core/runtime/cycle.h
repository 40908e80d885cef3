#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/abort_cell.h"
#include "runtime/process_set.h"
#include "runtime/queue.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

struct CycleOptions {
  int64_t stall_warning_us = 10000000;  // 0 = never
  int64_t stall_failure_us = 0;         // 0 = never
  // A link is lost or this rank cannot go on; the cause comes back through the abort cell.
  std::function<void(int culprit, std::string reason)> on_failure;
};

// The work of the engine, one round at a time. Belongs to the holder of the progress lock.
class Cycle {
 public:
  Cycle(int rank, CycleOptions options, Queue* queue, AbortCell* abort);

  void Own(std::unique_ptr<Window> window) { windows_.push_back(std::move(window)); }
  void Own(std::unique_ptr<Transport> transport) { transports_.push_back(std::move(transport)); }
  void Own(std::unique_ptr<ProcessSet> set) { sets_.push_back(std::move(set)); }

  // True when anything moved: another round may find more.
  bool Round();

  // There is something that a round may move, now or when a peer acts. Callable without the lock.
  bool HasWork() const { return queue_->in_flight() > 0 || unsent_.load(); }

  // See Window::Arm.
  void Arm(bool sleeping);
  // What to sleep on besides the waker.
  void AddPollFds(std::vector<pollfd>* fds) const;
  // Until when, on the clock of NowMicros; -1 = no limit.
  int64_t Deadline() const;
  // How many rounds there have been. Callable without the lock.
  uint64_t rounds() const { return rounds_.load(std::memory_order_acquire); }
  // When submissions were last taken from the queue.
  int64_t drained_us() const { return drained_us_; }

  // Completed operations with a sink to call once the lock is released.
  std::vector<HandlePtr> TakeFinished();

  // Fails everything in flight and lets go of user memory.
  void FailAll(const Status& status);
  void Close();

 private:
  bool Drain(int64_t now_us);
  Status Tick(int64_t now_us, bool* moved);
  void Broken(const Status& status);
  void CheckStall(int64_t now_us);
  ProcessSet* Find(uint32_t id);

  int rank_;
  CycleOptions options_;
  Queue* queue_;
  AbortCell* abort_;
  // Destroyed in reverse: sets let go of windows and transports first.
  std::vector<std::unique_ptr<Window>> windows_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<ProcessSet>> sets_;
  std::vector<HandlePtr> taken_;
  std::vector<HandlePtr> urged_;
  std::vector<HandlePtr> failed_;
  std::atomic<bool> unsent_{false};  // control bytes wait for room
  std::atomic<uint64_t> rounds_{0};
  bool broken_ = false;  // reported; the cause has not come back yet
  int64_t drained_us_ = 0;
  int64_t stall_period_us_ = 0;  // 0 = no check
  int64_t next_stall_check_us_ = 0;
  int64_t next_stall_warning_us_ = 0;
};

}  // namespace hvd
