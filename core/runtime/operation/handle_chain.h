#pragma once

#include <utility>

#include "runtime/operation/handle.h"

namespace hvd {

// Operations in an order, linked through themselves: to add, remove and hand over needs no memory, so that
// operations can be ended when there is none. An operation is in one chain at a time. Not thread safe.
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

}  // namespace hvd
