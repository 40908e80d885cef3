#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/rank.h"
#include "base/status.h"

namespace hvd {

using Flag = std::atomic<uint64_t>;
static_assert(Flag::is_always_lock_free, "flags are shared between processes");

using SegmentId = int;

// Shared memory among the ranks of a host, for one process set in one generation.
//
// Rules. A flag has one writer and only grows; it lies in a cache line that no other rank writes.
// Sizes are never read from shared memory. A segment belongs to one generation and dies with it.
class Window {
 public:
  static constexpr Position kEverybody{};

  virtual ~Window() = default;
  virtual Position position() const = 0;  // of this rank
  virtual int size() const = 0;

  // Every member adds a zeroed, pre-faulted segment of `bytes`, all in the same order. May block
  // until everybody has: called while a process set is made, never from a step.
  virtual Status Allocate(size_t bytes, SegmentId* id) = 0;

  // Sees to it that there is memory for this rank's own part of a segment, before it is used first:
  // a window may have been made without. Waits for nobody.
  virtual Status Populate(SegmentId /*id*/) { return Status::Ok(); }

  // Where a member's segment is mapped here, page aligned.
  virtual std::byte* Span(Position member, SegmentId id) = 0;

  // Publishes `value` (everything written before is visible to whoever reads it) and rings the
  // sleeping members that wait for it: `reader`, or everybody. The check for sleepers is
  // sequentially consistent with Arm.
  virtual void Post(Flag& flag, uint64_t value, Position reader = kEverybody) = 0;

  // What the flag's writer last published, with acquire order.
  static uint64_t Try(const Flag& flag) { return flag.load(std::memory_order_acquire); }

  // Announces that this rank is about to sleep (true) or is awake (false). After Arm(true) the
  // caller must look at its flags once more before it sleeps: a later Post rings its Waker.
  virtual void Arm(bool sleeping) = 0;
};

}  // namespace hvd
