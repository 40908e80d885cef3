#include "settings/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace hvd::failpoint {

namespace internal {
std::atomic<bool> armed{false};
}

namespace {

struct Point {
  std::string name;
  uint64_t count = 0;
  int signal = 0;
  std::string announcement;
};

// Never destroyed: a thread may pass a point while the process exits.
Point& ThePoint() {
  static Point& point = *new Point;
  return point;
}

std::atomic<uint64_t> hits{0};

Status BadSpec(const std::string& spec) {
  return Status::Invalid("HOROVOD_FAILPOINT=" + Shown(spec) +
                         ": expected name@count:rankR:action, action one of stop, kill");
}

}  // namespace

Status Arm(const std::string& spec, int rank) {
  internal::armed = false;
  if (spec.empty()) return Status::Ok();
  char name[65];
  unsigned long long count = 0;
  int victim = -1;
  char action[8];
  int used = 0;
  const int fields = std::sscanf(spec.c_str(), "%64[^@:]@%18llu:rank%9d:%7[a-z]%n", name, &count,
                                 &victim, action, &used);
  const bool stop = fields == 4 && std::strcmp(action, "stop") == 0;
  const bool kill = fields == 4 && std::strcmp(action, "kill") == 0;
  if ((!stop && !kill) || count == 0 || victim < 0 || spec[used] != '\0') return BadSpec(spec);
  if (victim != rank) return Status::Ok();
  const std::string what = std::string("failpoint ") + name + "@" + std::to_string(count);
  ThePoint() = {name, count, stop ? SIGSTOP : SIGKILL,
                what + " on rank " + std::to_string(victim) + ": " + action + "\n"};
  hits = 0;
  internal::armed = true;
  return Status::Ok();
}

void internal::Count(const char* name) {
  const Point& point = ThePoint();
  if (point.name != name || hits.fetch_add(1) + 1 != point.count) return;
  [[maybe_unused]] const ssize_t ignored =
      write(STDERR_FILENO, point.announcement.data(), point.announcement.size());
  kill(getpid(), point.signal);
}

}  // namespace hvd::failpoint
