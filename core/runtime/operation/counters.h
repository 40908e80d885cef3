#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace hvd {

// Totals since init. Written by whoever drives, the last three by any thread; read by anybody.
struct Counters {
  std::atomic<uint64_t> collectives{0};       // collectives run by the backend
  std::atomic<uint64_t> reductions{0};        // those that reduce
  std::atomic<uint64_t> tensors{0};           // tensors in all of them
  std::atomic<uint64_t> bytes{0};             // bytes of their inputs
  std::atomic<uint64_t> cache_hits{0};        // operations announced by a cached id
  std::atomic<uint64_t> cache_misses{0};      // operations announced in full
  std::atomic<uint64_t> responses{0};         // responses carried out
  std::atomic<uint64_t> control_messages{0};  // announcements and responses sent
  std::atomic<uint64_t> gates{0};             // batches of a learned schedule that were run
  std::atomic<uint64_t> scheduled{0};         // operations in them
  std::atomic<uint64_t> carried{0};           // tensors whose data came with the marks
  std::atomic<uint64_t> schedules_left{0};    // schedules that were given up
  std::atomic<uint64_t> autotune_samples{0};  // taken on this rank
  std::atomic<uint64_t> messages{0};          // sent to one rank, and received from one
  std::atomic<uint64_t> wakeups{0};           // times a thread of the engine was woken from sleep
  std::atomic<uint64_t> waited_us{0};         // that threads of the program waited for operations

  // Under the names that the program sees.
  std::map<std::string, uint64_t> Now() const {
    return {{"collectives", collectives},
            {"reductions", reductions},
            {"tensors", tensors},
            {"bytes", bytes},
            {"cache_hits", cache_hits},
            {"cache_misses", cache_misses},
            {"responses", responses},
            {"control_messages", control_messages},
            {"gates", gates},
            {"scheduled", scheduled},
            {"carried", carried},
            {"schedules_left", schedules_left},
            {"autotune_samples", autotune_samples},
            {"messages", messages},
            {"wakeups", wakeups},
            {"waited_us", waited_us}};
  }
};

// By whoever drives. An operation is counted in many ways, and an atomic addition takes as long as
// ten others.
inline void Count(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}
// By any thread.
inline void CountShared(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace hvd
