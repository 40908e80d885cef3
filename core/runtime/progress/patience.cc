#include "runtime/progress/patience.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace hvd {

namespace {

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

}  // namespace

void ReadAffinity(uint64_t mask[kMaskWords]) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::memset(mask, 0, kMaskWords * sizeof *mask);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  std::memcpy(mask, &set, std::min(sizeof set, kMaskWords * sizeof *mask));
}

int QuotaCores() {
  const int v2 = CgroupV2();
  return v2 != 0 ? v2 : CgroupV1();
}

int UsableCores() {
  uint64_t mask[kMaskWords];
  ReadAffinity(mask);
  int cores = 0;
  for (uint64_t word : mask) cores += __builtin_popcountll(word);
  const int quota = QuotaCores();
  return std::max(1, quota != 0 ? std::min(cores, quota) : cores);
}

}  // namespace hvd
