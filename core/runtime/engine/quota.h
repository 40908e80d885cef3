#pragma once

#include <string>

namespace hvd {

// The whole cores that the control groups of this process allow, of either version: the smallest
// quota of its own group and of those around it; 0 = no limit. `mounted` is where the groups are,
// `own` the file that says which of them this process is in. Twin: runner/cgroups.py.
int CgroupQuota(const std::string& mounted = "/sys/fs/cgroup",
                const std::string& own = "/proc/self/cgroup");

}  // namespace hvd
