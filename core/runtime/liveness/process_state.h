#pragma once

#include <cstdint>
#include <string>

namespace hvd {

// What the kernel says of a process of this host and this namespace of processes.
enum class ProcessState {
  kUnknown,
  kAlive,
  kDead,
  kUninterruptible,
  kStopped,  // by a signal
  kTraced,   // by a debugger that has stopped it
  kFrozen,   // with its control group, as a container that is paused
};

ProcessState StateOf(int32_t pid);

// Whether somebody has stopped it who may let it go on.
bool IsHeld(ProcessState state);

// "is stopped by a debugger"; empty when it is not known.
std::string Predicate(ProcessState state);

// Whether the control group at this path, as /proc/PID/cgroup has it, or one around it, is frozen.
// `root`: where the system shows the groups.
bool IsFrozen(const std::string& line, const std::string& root);

}  // namespace hvd
