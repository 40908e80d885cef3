#pragma once

// Ranks as threads, sleeping as the engine sleeps, and a count of what a test leaves behind.

#include <dirent.h>
#include <poll.h>

#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/waker.h"

namespace hvd::test {

constexpr int kPatienceMs = 20'000;

inline void RunRanks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// By rank: hosts of two, one and three ranks, and again; the last one has what is left.
inline std::vector<int> HostsOfEveryShape(int size) {
  constexpr int kSizes[] = {2, 1, 3};
  std::vector<int> hosts;
  for (int host = 0; static_cast<int>(hosts.size()) < size; ++host) {
    hosts.insert(hosts.end(), kSizes[host % 3], host);
  }
  hosts.resize(size);
  return hosts;
}

// By rank: 2x2, 3x2 and 2+1+3 hosts.
inline const std::vector<std::vector<int>>& HostShapes() {
  static const std::vector<std::vector<int>> shapes{
      {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 1, 2, 2, 2}};
  return shapes;
}

// False after `timeout_ms` without anything to read.
inline bool Readable(int fd, int timeout_ms = kPatienceMs) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) > 0;
}

inline int OpenDescriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Mappings that stand for shared or descriptor-backed memory; the allocator's own come and go.
inline int SharedMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:") != std::string::npos;
  return count;
}

}  // namespace hvd::test
