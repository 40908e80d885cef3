// Native code that writes out of bounds may hit what the ranks of a host share. The job then ends
// with an error that says so on every rank, soon, and blames no rank: anybody may have written it.

#include <atomic>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kLimit = 20'000'000;  // microseconds

struct Mapped {
  std::byte* begin;
  size_t bytes;
  std::string inode;  // the ranks are threads, so a segment is mapped once by each of them
};

std::vector<Mapped> Segments() {
  std::ifstream maps("/proc/self/maps");
  std::vector<Mapped> found;
  std::set<std::string> seen;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[5] = "", inode[32] = "";
    if (line.find("memfd:") == std::string::npos) continue;
    std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %31s", &begin, &end, rights, inode);
    if (rights[1] != 'w' || !seen.insert(inode).second) continue;
    found.push_back({reinterpret_cast<std::byte*>(begin), end - begin, inode});
  }
  return found;
}

using Pattern = std::function<uint64_t(std::mt19937_64&)>;

void Scribble(const Mapped& segment, const Pattern& pattern, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < segment.bytes; at += sizeof(uint64_t)) {
    reinterpret_cast<std::atomic<uint64_t>*>(segment.begin + at)->store(pattern(random));
  }
}

// All ranks stop between two operations while rank 0 scribbles over one of the segments.
void EndsCleanly(size_t victim, const Pattern& pattern, int64_t elements) {
  Cluster cluster(kRanks, Wires::kShm);
  std::atomic<int> ready{0};
  std::atomic<bool> done{false};
  cluster.Run([&](Engine& engine, int rank) {
    std::vector<float> data(static_cast<size_t>(elements), 1.0f);
    ASSERT_OK(Allreduce(engine, "before", &data));
    ++ready;
    while (ready < kRanks) std::this_thread::yield();
    if (rank == 0) {
      const std::vector<Mapped> segments = Segments();
      if (victim < segments.size()) Scribble(segments[victim], pattern, victim);
      done = true;
    }
    while (!done) std::this_thread::yield();
    HandlePtr handle;
    Status status = Submit(engine, AllreduceEntry("after", &data), &handle);
    if (status.ok()) status = engine.Wait(handle, kLimit, nullptr);
    if (status.ok()) {  // it hit nothing that this operation reads before it has written it
      for (const float value : data) ASSERT_TRUE(value == kRanks * kRanks);
      return;
    }
    if (!EXPECT_TRUE(status.code() == Code::kAborted))
      std::printf("  %s\n", status.message().c_str());
    EXPECT_TRUE(status.message().find("memory that the ranks of this host share is corrupt") !=
                std::string::npos);
  });
}

void EndsCleanlyWhicheverSegment(const Pattern& pattern) {
  for (size_t victim = 0; victim < 2 * kRanks; ++victim) {
    for (const int64_t elements : {1, 1000, 300000}) EndsCleanly(victim, pattern, elements);
  }
}

TEST(Scribble, Ones) {
  EndsCleanlyWhicheverSegment([](std::mt19937_64&) { return ~uint64_t{0}; });
}

TEST(Scribble, Noise) {
  EndsCleanlyWhicheverSegment([](std::mt19937_64& random) { return random(); });
}

TEST(Scribble, Text) {
  EndsCleanlyWhicheverSegment([](std::mt19937_64&) { return uint64_t{0x2120646c726f7720}; });
}

}  // namespace
}  // namespace hvd::test
