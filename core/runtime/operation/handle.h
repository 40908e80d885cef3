#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "runtime/operation/entry.h"

namespace hvd {

using HandlePtr = std::shared_ptr<Handle>;

// The life of one operation: queued -> announced -> decided -> running -> done.
// Fields but `done` belong to the holder of the progress lock until `done` is set, to the waiter
// afterwards.
struct Handle {
  explicit Handle(Entry e) : entry(std::move(e)) {}

  Entry entry;
  uint64_t id = 0;  // number of the submission on this rank
  uint64_t generation = 0;
  uint64_t ordinal = 0;    // n-th unnamed operation of the set; 0 = named, or a join
  uint64_t announced = 0;  // place in this rank's announcements to the set, from 1; 0 = not yet
  bool urged = false;      // its program waits for it
  int64_t submitted_us = 0;
  // How many operations this rank had submitted when the program last asked whether this one was
  // done.
  std::atomic<uint64_t> asked_at{0};
  // A response has named it; of a message: it has met its receive.
  std::atomic<bool> decided{false};
  size_t running = 0;  // collectives of this operation that are not complete
  Status status;
  // By tensor; empty when the core allocated none, without data where only others were; on a device
  // never empty, for each has its end. Behind that
  // of an alltoall, or alone if it was given one, the rows received from each member (int64); of a
  // join, the last rank to join (int64).
  std::vector<Output> outputs;
  std::vector<Output>
      kept;  // memory that the buffers of the entry point into, where it is the core's
  std::shared_ptr<const DeviceEnd> end;  // of one on a device: of the last of its collectives
  uint64_t sample = 0;  // of the outputs as the operation left them, where the entry asks for it
  std::atomic<bool> done{false};
  // Nobody holds it any more, so that the next operation of its name need not be a mistake.
  std::atomic<bool> abandoned{false};
  HandlePtr successor;  // that operation, which begins when this one is over; guarded by the queue

  // The neighbours in a HandleChain, of whoever owns that.
  HandlePtr next;
  Handle* previous = nullptr;

  std::string name() const;  // the public name, for messages
  // Where the result of a tensor goes, as far as that is known.
  std::byte* OutputOf(size_t tensor) const {
    std::byte* const given = entry.buffers[tensor].output;
    return given != nullptr || outputs.empty() ? given : outputs[tensor].data.get();
  }
  // In bytes.
  int64_t RoomOf(size_t tensor) const {
    const TensorBuffer& buffer = entry.buffers[tensor];
    const bool given = buffer.output != nullptr || outputs.empty();
    return given ? buffer.output_bytes : outputs[tensor].bytes;
  }
  // Once done: whether nothing uses its tensors any more. A GPU may have to come to it yet.
  bool IsOver() const { return end == nullptr || end->HasCome(); }
  // Once done: whether somebody has written to the outputs since, as far as a sample tells.
  bool Changed() const;
};

// Operations in an order, linked through themselves: to add, remove and hand over needs no memory,
// so that operations can be ended when there is none. An operation is in one chain at a time. Not
// thread safe.
class HandleChain {
 public:
  HandleChain() = default;
  HandleChain(HandleChain&& other) noexcept
      : first_(std::move(other.first_)), last_(std::exchange(other.last_, nullptr)) {}
  HandleChain& operator=(HandleChain&&) = delete;
  ~HandleChain() {
    while (PopFront() != nullptr) {
    }
  }

  bool empty() const noexcept { return first_ == nullptr; }
  // Null when empty; its `next` leads on.
  const HandlePtr& first() const noexcept { return first_; }

  void Append(HandlePtr handle) noexcept {
    Handle* const added = handle.get();
    added->previous = last_;
    (last_ == nullptr ? first_ : last_->next) = std::move(handle);
    last_ = added;
  }

  void Append(HandleChain other) noexcept {
    while (HandlePtr handle = other.PopFront()) Append(std::move(handle));
  }

  HandlePtr PopFront() noexcept { return empty() ? nullptr : Remove(first_.get()); }

  // Of this chain.
  HandlePtr Remove(Handle* handle) noexcept {
    HandlePtr& link = handle->previous == nullptr ? first_ : handle->previous->next;
    HandlePtr removed = std::move(link);
    link = std::move(removed->next);
    (link == nullptr ? last_ : link->previous) = removed->previous;
    removed->previous = nullptr;
    return removed;
  }

 private:
  HandlePtr first_;
  Handle* last_ = nullptr;
};

// Ends it for its submitter. Its callback, if it has one, is for whoever takes `finished`, without
// the progress lock.
inline void EndOperation(const HandlePtr& handle, Status status, HandleChain* finished) noexcept {
  handle->status = std::move(status);
  if (handle->entry.on_complete) finished->Append(handle);
  handle->done.store(true, std::memory_order_release);
}

// A number made of the contents of the entry's outputs: of tensors of up to 1 KiB of all, of larger
// ones of 8 spots of 128 bytes spread evenly, so that it costs no more than as many reads of
// memory. Equal contents make equal numbers; what changes many elements, such as clipping, scaling
// or zeroing, changes it almost surely.
uint64_t Sample(const Entry& entry);

}  // namespace hvd
