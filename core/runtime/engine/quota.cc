#include "runtime/engine/quota.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace hvd {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

double QuotaV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0;  // not read where it is "max"
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

double QuotaV1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return kNoLimit;
  return quota > 0 && period > 0 ? quota / period : kNoLimit;
}

bool HasCpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

// From the group at `top` to the one at `path` below it. In a container without a namespace of its
// own for groups the path is that of the host, and its own group is at the top.
double Smallest(std::string folder, const std::string& path,
                double (*quota_of)(const std::string&)) {
  double found = quota_of(folder);
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '/');) {
    if (name.empty() || name == "..") continue;
    folder += "/" + name;
    found = std::min(found, quota_of(folder));
  }
  return found;
}

}  // namespace

int CgroupQuota(const std::string& mounted, const std::string& own) {
  double found = kNoLimit;
  std::ifstream groups(own);
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (line.substr(0, first) == "0" && controllers.empty()) {
      found = std::min(
          {found, Smallest(mounted, path, QuotaV2), Smallest(mounted + "/unified", path, QuotaV2)});
    } else if (HasCpu(controllers)) {
      found = std::min({found, Smallest(mounted + "/" + controllers, path, QuotaV1),
                        Smallest(mounted + "/cpu", path, QuotaV1)});
    }
  }
  return found < std::numeric_limits<int>::max() ? std::max(1, static_cast<int>(found)) : 0;
}

}  // namespace hvd
