#include "runtime/engine/cores.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/clock.h"
#include "runtime/engine/quota.h"

namespace hvd {

namespace {

constexpr int kMaskWords = 16;
constexpr useconds_t kShortestUs = 50;
constexpr useconds_t kLongestUs = 2000;

// The cores that an affinity allows, a bit each.
struct CoreMask {
  uint64_t words[kMaskWords] = {};

  void Add(const CoreMask& other) {
    for (int w = 0; w < kMaskWords; ++w) words[w] |= other.words[w];
  }
  int Count() const {
    int count = 0;
    for (const uint64_t word : words) count += __builtin_popcountll(word);
    return count;
  }
};

CoreMask Affinity() {
  CoreMask mask;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return mask;
  std::memcpy(mask.words, &set, std::min(sizeof set, sizeof mask.words));
  return mask;
}

// At least one, and not more than the quota of the cgroup.
int Limited(const CoreMask& mask) {
  const int quota = CgroupQuota();
  const int cores = mask.Count();
  return std::max(1, quota != 0 ? std::min(cores, quota) : cores);
}

// What one rank tells the others of its host.
struct CoreReport {
  alignas(64) Flag written;
  CoreMask mask;
};

CoreReport& ReportOf(Window* window, Position member, SegmentId id) {
  return *reinterpret_cast<CoreReport*>(window->Span(member, id));
}

bool HasEnded(int link) {
  pollfd entry = {link, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && entry.revents != 0;
}

}  // namespace

int UsableCores() { return Limited(Affinity()); }

size_t CoreCountBytes() { return sizeof(CoreReport); }

Status CountCores(Window* window, const std::vector<int>& links, int64_t deadline_us, int* cores) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(CoreReport), &id));
  CoreReport& mine = ReportOf(window, window->position(), id);
  mine.mask = Affinity();
  window->Post(mine.written, 1);
  CoreMask all;
  for (Position member(0); member.value() < window->size(); member = Next(member)) {
    CoreReport& report = ReportOf(window, member, id);
    for (useconds_t pause = kShortestUs; Window::Try(report.written) == 0;
         pause = std::min(2 * pause, kLongestUs)) {
      if (NowMicros() > deadline_us)
        return Status::Aborted("a rank of this host did not finish its start");
      if (std::any_of(links.begin(), links.end(), HasEnded))
        return Status::Aborted("a rank has ended during its start");
      usleep(pause);
    }
    all.Add(report.mask);
  }
  *cores = Limited(all);
  return Status::Ok();
}

}  // namespace hvd
