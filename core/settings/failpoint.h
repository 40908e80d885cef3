#pragma once

#include <atomic>
#include <string>

#include "base/status.h"

// Places where a test can stop or kill this process. Off unless armed; then a place costs one
// relaxed load.
namespace hvd::failpoint {

// "name@count:rankR:action": at the count-th Hit(name) on rank R, `stop` (SIGSTOP) or `kill`
// (SIGKILL) this process. An empty spec disarms, as does one for another rank. Before the engine's
// threads start.
Status Arm(const std::string& spec, int rank);

namespace internal {
extern std::atomic<bool> armed;
void Count(const char* name);
}  // namespace internal

inline void Hit(const char* name) {
  if (internal::armed.load(std::memory_order_relaxed)) internal::Count(name);
}

}  // namespace hvd::failpoint
