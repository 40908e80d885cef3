#include "runtime/engine/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/engine/quota.h"

namespace hvd {

namespace {

constexpr int kMaskWords = 16;

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

}  // namespace

int UsableCores() { return Limited(Affinity()); }

size_t HostCores::Bytes() { return sizeof(CoreReport); }

Status HostCores::Tell(Window* window) {
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(CoreReport), &reports_));
  window_ = window;
  CoreReport& mine = ReportOf(window, window->position(), reports_);
  mine.mask = Affinity();
  window->Post(mine.written, 1);
  return Status::Ok();
}

int HostCores::Count() const {
  CoreMask all = Affinity();
  for (Position member(0); window_ != nullptr && member.value() < window_->size();
       member = Next(member)) {
    const CoreReport& report = ReportOf(window_, member, reports_);
    if (Window::Try(report.written) != 0) all.Add(report.mask);
  }
  return Limited(all);
}

}  // namespace hvd
