// The quota of control groups, in folders that are laid out as the system's are.
#include "runtime/engine/quota.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "check.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

// What a process in the groups of `own` may use, where these files are.
int Quota(const std::string& own, const std::map<std::string, std::string>& files) {
  const fs::path top = fs::temp_directory_path() / ("quota." + std::to_string(getpid()));
  fs::create_directories(top);
  for (const auto& [name, text] : files) {
    fs::create_directories((top / name).parent_path());
    std::ofstream(top / name) << text << "\n";
  }
  std::ofstream(top / "own") << own;
  const int cores = CgroupQuota(top.string(), (top / "own").string());
  fs::remove_all(top);
  return cores;
}

TEST(CgroupQuota, OfTheSecondVersionTheSmallestOfAllAroundCounts) {
  EXPECT_EQ(Quota("0::/\n", {{"cpu.max", "350000 100000"}}), 3);
  EXPECT_EQ(Quota("0::/\n", {{"cpu.max", "50000 100000"}}), 1);
  EXPECT_EQ(Quota("0::/\n", {{"cpu.max", "max 100000"}}), 0);
  EXPECT_EQ(Quota("0::/a/b\n", {{"a/cpu.max", "2 1"}, {"a/b/cpu.max", "4 1"}}), 2);
  EXPECT_EQ(Quota("0::/a/b\n", {{"a/cpu.max", "max 1"}, {"a/b/cpu.max", "4 1"}}), 4);
  EXPECT_EQ(Quota("0::/../of/the/host\n", {{"cpu.max", "2 1"}}), 2);
}

TEST(CgroupQuota, OfTheFirstVersionTheControllerOfProcessorTimeCounts) {
  const std::map<std::string, std::string> nested = {{"cpu,cpuacct/d/cpu.cfs_quota_us", "300000"},
                                                     {"cpu,cpuacct/d/cpu.cfs_period_us", "100000"},
                                                     {"cpu/cpu.cfs_quota_us", "-1"},
                                                     {"cpu/cpu.cfs_period_us", "100000"}};
  EXPECT_EQ(Quota("2:cpu,cpuacct:/d\n0::/\n", nested), 3);
  EXPECT_EQ(Quota("2:cpu:/\n", nested), 0);
  EXPECT_EQ(Quota("2:cpuset:/d\n3:cpuacct:/d\n", nested), 0);
}

TEST(CgroupQuota, WhereNothingIsKnownThereIsNoLimit) {
  EXPECT_EQ(Quota("nonsense\n\n0::\n", {}), 0);
  EXPECT_EQ(CgroupQuota("/no/such/folder", "/no/such/file"), 0);
}

}  // namespace
}  // namespace hvd::test
