#include "runtime/engine/cores.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "base/clock.h"

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

// Cores of a quota file pair ("max 100000", or quota and period apart); 0 = no limit.
int CgroupV2() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::stod(quota) / period));
}

int CgroupV1() {
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(quota / period));
}

// At least one, and not more than the quota of the cgroup.
int Limited(const CoreMask& mask) {
  const int v2 = CgroupV2();
  const int quota = v2 != 0 ? v2 : CgroupV1();
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
