#include "transport/shm/shared_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "check.h"

namespace hvd::test {
namespace {

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The least of the machine's memory and of every cgroup above the process; droppable cache counts
// as free.
TEST(AvailableMemory, HeedsCgroups) {
  std::string root = std::filesystem::temp_directory_path() / "hvd_available_XXXXXX";
  ASSERT_TRUE(mkdtemp(root.data()) != nullptr);
  const std::string group = root + "/sys/fs/cgroup/job/step";
  Write(root + "/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(shm::AvailableMemory(root), 5000u * 1024);
  Write(root + "/proc/self/cgroup", "0::/job/step\n");
  Write(group + "/memory.max", "max\n");
  Write(group + "/../memory.max", "1000000\n");
  Write(group + "/../memory.current", "900000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 100'000u);
  Write(group + "/../memory.stat", "anon 1\ninactive_file 300000\nactive_file 2\n");
  EXPECT_EQ(shm::AvailableMemory(root), 400'000u);
  Write(group + "/memory.max", "2000\n");
  Write(group + "/memory.current", "5000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 0u);
  Write(root + "/proc/self/cgroup", "7:memory:/old\n");
  Write(root + "/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "70000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 70'000u);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace hvd::test
