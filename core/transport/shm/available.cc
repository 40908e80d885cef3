#include "transport/shm/available.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace hvd::shm {

namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number after `key` in a file of "key value" lines; `missing` without one.
uint64_t Lookup(const std::string& path, const std::string& key, uint64_t missing) {
  std::ifstream file(path);
  for (std::string name; file >> name; file.ignore(1 << 12, '\n')) {
    uint64_t value;
    if (name == key && file >> value) return value;
    file.clear();
  }
  return missing;
}

// A file that holds one number; `missing` when it is absent or holds the word "max".
uint64_t Number(const std::string& path, uint64_t missing) {
  std::ifstream file(path);
  uint64_t value;
  return file >> value ? value : missing;
}

// What one cgroup leaves; the page cache that it can drop counts as free.
uint64_t Headroom(const std::string& folder, const char* limit_file, const char* usage_file,
                  const char* cache_key) {
  const uint64_t limit = Number(folder + limit_file, kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  const uint64_t usage = Number(folder + usage_file, 0);
  const uint64_t cache = Lookup(folder + "/memory.stat", cache_key, 0);
  const uint64_t used = usage - std::min(cache, usage);
  return limit - std::min(used, limit);
}

// The cgroup's folder below its mount, from a line "0::/a/b" (version 2) or "5:memory:/a/b" (version 1).
std::string CgroupPath(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t mark = line.find(":" + controller + ":/");
    if (mark != std::string::npos) return line.substr(mark + controller.size() + 2);
  }
  return "/";
}

// The least that any cgroup from `path` up to the mount leaves.
template <typename Leaves>
uint64_t LeastUpwards(std::string path, const Leaves& leaves) {
  uint64_t least = leaves("");
  while (path.size() > 1) {
    least = std::min(least, leaves(path));
    path.resize(path.rfind('/'));
  }
  return least;
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  const uint64_t kib = Lookup(root + "/proc/meminfo", "MemAvailable:", kUnlimited);
  const uint64_t machine = kib == kUnlimited ? kUnlimited : kib * 1024;
  const uint64_t v2 = LeastUpwards(CgroupPath(root, ""), [&](const std::string& path) {
    return Headroom(root + "/sys/fs/cgroup" + path, "/memory.max", "/memory.current", "inactive_file");
  });
  const uint64_t v1 = LeastUpwards(CgroupPath(root, "memory"), [&](const std::string& path) {
    return Headroom(root + "/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                    "total_inactive_file");
  });
  return std::min({machine, v2, v1});
}

}  // namespace hvd::shm
