#pragma once

#include <atomic>
#include <utility>

#include "runtime/operation/handle.h"
#include "runtime/operation/queue.h"

namespace hvd::peer {

// Ends operations, as the executor of a process set ends its own.
class Completion {
 public:
  explicit Completion(Queue* queue) : queue_(queue) {}

  // Unless it has ended: its submitter may have left it (see Messages::Leave).
  void Complete(const HandlePtr& handle, Status status) noexcept {
    if (handle->done.load(std::memory_order_relaxed)) return;
    --open_;
    queue_->Forget(handle.get());
    handle->status = std::move(status);
    if (handle->entry.on_complete) finished_.Append(handle);
    handle->done.store(true, std::memory_order_release);
  }

  void Begin() { ++open_; }
  size_t open() const { return open_; }  // begun and not complete
  void Clear() noexcept { open_ = 0; }

  // Those whose sinks are to be called without the progress lock.
  HandleChain TakeFinished() noexcept { return std::move(finished_); }

 private:
  Queue* const queue_;
  size_t open_ = 0;
  HandleChain finished_;
};

}  // namespace hvd::peer
