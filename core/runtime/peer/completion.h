#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/event_sink.h"
#include "runtime/operation/handle.h"
#include "runtime/operation/queue.h"

namespace hvd::peer {

// Ends operations, as the executor of a process set ends its own.
class Completion {
 public:
  // `events`: null without a timeline.
  Completion(Queue* queue, EventSink* events) : queue_(queue), events_(events) {}

  // Unless it has ended: its submitter may have left it (see Messages::Leave).
  void Complete(const HandlePtr& handle, Status status) noexcept {
    if (handle->done.load(std::memory_order_relaxed)) return;
    --open_;
    queue_->Forget(handle.get());
    if (IsShown(*handle)) events_->End(handle->id);
    EndOperation(handle, std::move(status), &finished_);
  }

  void Begin(const Handle& handle) {
    ++open_;
    if (IsShown(handle)) Trace(handle);
  }
  // Its payload is on its way.
  void Travels(const Handle& handle) {
    if (IsShown(handle)) events_->Phase(handle.id, MessagePhase(handle.entry.peer->sends));
  }
  // Begun and not complete. One that is left before it has begun counts in both, in that order.
  int64_t open() const { return open_; }
  void Clear() noexcept { open_ = 0; }

  // Those whose sinks are to be called without the progress lock.
  HandleChain TakeFinished() noexcept { return std::move(finished_); }

 private:
  // The engine's own notes are none of the program's.
  bool IsShown(const Handle& handle) const {
    return events_ != nullptr && !IsNote(handle.entry.peer->tag);
  }

  void Trace(const Handle& handle) {
    const PeerOperation& peer = *handle.entry.peer;
    const negotiate::TensorMeta& tensor = handle.entry.request.tensors.front();
    events_->BeginMessage(handle.id, handle.entry.process_set,
                          {peer.sends, peer.rank, peer.tag, tensor.dtype,
                           negotiate::BytesOf(handle.entry.request), &tensor.shape});
  }

  Queue* const queue_;
  EventSink* const events_;
  int64_t open_ = 0;
  HandleChain finished_;
};

}  // namespace hvd::peer
