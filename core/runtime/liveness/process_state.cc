#include "runtime/liveness/process_state.h"

#include <cstdio>
#include <fstream>

namespace hvd {

namespace {

constexpr unsigned kExiting = 0x4;  // PF_EXITING
constexpr char kGroups[] = "/sys/fs/cgroup";

// Two columns of /proc/<pid>/stat; false when there is no such process.
bool ReadProcess(int32_t pid, char* state, unsigned* flags) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  if (pid <= 0 || !std::getline(file, stat)) return false;
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  return std::sscanf(stat.c_str() + name_end, ") %c %*d %*d %*d %*d %*d %u", state, flags) == 2;
}

bool HasLine(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line == wanted) return true;
  }
  return false;
}

bool IsInFrozenGroup(int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (IsFrozen(line, kGroups)) return true;
  }
  return false;
}

}  // namespace

// A line is "0::/path" where there is one hierarchy, else "7:freezer:/path".
bool IsFrozen(const std::string& line, const std::string& root) {
  const size_t names = line.find(':');
  const size_t path = line.find(':', names + 1);
  if (names == std::string::npos || path == std::string::npos) return false;
  const std::string controllers = line.substr(names + 1, path - names - 1);
  const std::string group = line.substr(path + 1);
  if (controllers.empty()) return HasLine(root + group + "/cgroup.events", "frozen 1");
  return controllers == "freezer" &&
         HasLine(root + "/freezer" + group + "/freezer.state", "FROZEN");
}

ProcessState StateOf(int32_t pid) {
  char state = 0;
  unsigned flags = 0;
  if (!ReadProcess(pid, &state, &flags)) return ProcessState::kUnknown;
  if ((flags & kExiting) != 0) return ProcessState::kDead;
  switch (state) {
    case 'T':
      return ProcessState::kStopped;
    case 't':
      return ProcessState::kTraced;
    case 'Z':
    case 'X':
      return ProcessState::kDead;
    default:
      break;
  }
  if (IsInFrozenGroup(pid)) return ProcessState::kFrozen;
  return state == 'D' ? ProcessState::kUninterruptible : ProcessState::kAlive;
}

bool IsHeld(ProcessState state) {
  return state == ProcessState::kStopped || state == ProcessState::kTraced ||
         state == ProcessState::kFrozen;
}

std::string Predicate(ProcessState state) {
  switch (state) {
    case ProcessState::kAlive:
      return "is alive";
    case ProcessState::kDead:
      return "is dead";
    case ProcessState::kUninterruptible:
      return "is in uninterruptible sleep";
    case ProcessState::kStopped:
      return "is stopped";
    case ProcessState::kTraced:
      return "is stopped by a debugger";
    case ProcessState::kFrozen:
      return "is frozen with its control group, as in a paused container";
    case ProcessState::kUnknown:
      break;
  }
  return "";
}

}  // namespace hvd
