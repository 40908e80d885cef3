// Process sets that their members have made and leave by themselves, and what remains of them.

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cluster.h"
#include "runtime/engine/messages.h"

namespace hvd::test {
namespace {

constexpr int64_t kPatienceUs = 60'000'000;

// That all files of shared memory of this process take.
int64_t SharedBytes() {
  int64_t bytes = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(folder)) {
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    char target[64] = {};
    struct stat info {};
    if (readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
    if (std::string(target).find("memfd:horovod") == std::string::npos) continue;
    if (stat(path.c_str(), &info) == 0) bytes += info.st_blocks * int64_t{512};
  }
  closedir(folder);
  return bytes;
}

// The same sum on all members, who leave at once: others may not have gone so far.
void UseAndLeave(Engine& engine, int rank, const std::vector<int>& members, size_t elements) {
  uint32_t id = 0;
  ASSERT_OK(engine.AddOwnProcessSet(members, kPatienceUs, nullptr, &id));
  float sum = 0;
  for (const int member : members) sum += static_cast<float>(member + 1);
  std::vector<float> data(elements, static_cast<float>(rank + 1));
  ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
  EXPECT_EQ(data.front(), sum);
  EXPECT_EQ(data.back(), sum);
  ASSERT_OK(engine.LeaveProcessSet(id));
}

TEST(LeftSets, CostNothingHoweverManyThereWere) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    int64_t before = 0;
    cluster.Run([&](Engine& engine, int rank) {
      for (int i = 0; i < 300; ++i) {
        if (rank == 0 && i == 100) before = SharedBytes();
        UseAndLeave(engine, rank, {0, 1, 2}, 100);
      }
      ASSERT_OK(Barrier(engine));
      EXPECT_EQ(engine.ProcessSets().size(), size_t{1});
      // A member may be some sets ahead of another.
      if (rank == 0) EXPECT_TRUE(SharedBytes() < before + (int64_t{40} << 20));
    });
  }
}

// Some places are in use all the time.
TEST(LeftSets, GiveTheirPlacesToOthersBesideThoseInUse) {
  Cluster cluster(2, Wires::kShm);
  int64_t before = 0;
  cluster.Run([&](Engine& engine, int rank) {
    uint32_t id = 0;
    for (int i = 0; i < 200; ++i)
      ASSERT_OK(engine.AddOwnProcessSet({0, 1}, kPatienceUs, nullptr, &id));
    if (rank == 0) before = SharedBytes();
    for (int i = 0; i < 300; ++i) UseAndLeave(engine, rank, {0, 1}, 100);
    ASSERT_OK(Barrier(engine, id));
    if (rank == 0) EXPECT_TRUE(SharedBytes() < before + (int64_t{60} << 20));
  });
}

TEST(LeftSets, ServeTheSlowerMembersToTheEnd) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(3);  // the same choices on every rank
      for (int round = 0; round < 60; ++round) {
        std::vector<int> members;
        for (int member = 0; member < 4; ++member) {
          if (random() % 3 > 0) members.push_back(member);
        }
        const size_t elements = 1 + random() % (round % 4 == 0 ? 400'000 : 2'000);
        const unsigned slow = random() % 4;
        if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
        if (static_cast<int>(slow) == rank) usleep(2'000);
        UseAndLeave(engine, rank, members, elements);
      }
    });
  }
}

TEST(LeftSets, TakeNothingMoreAndEndWhatIsInFlight) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      uint32_t id = 0;
      ASSERT_OK(engine.AddOwnProcessSet({0, 1}, kPatienceUs, nullptr, &id));
      std::vector<float> data(10, 1.0f);
      if (rank == 1) {
        ASSERT_OK(Barrier(engine));
        ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
        ASSERT_OK(engine.LeaveProcessSet(id));
        return;
      }
      HandlePtr handle;
      ASSERT_OK(Submit(engine, AllreduceEntry("x", &data, ReduceOp::kSum, id), &handle));
      ASSERT_OK(engine.LeaveProcessSet(id));
      HandlePtr refused;
      EXPECT_TRUE(Submit(engine, AllreduceEntry("y", &data, ReduceOp::kSum, id), &refused).code() ==
                  Code::kInvalidArgument);
      EXPECT_TRUE(engine.LeaveProcessSet(id).code() == Code::kInvalidArgument);
      ASSERT_OK(Barrier(engine));
      ASSERT_OK(engine.Wait(handle, kPatienceUs, nullptr));
      EXPECT_EQ(data.back(), 2.0f);
      ASSERT_OK(engine.AddOwnProcessSet({0}, kPatienceUs, nullptr, &id));
      EXPECT_EQ(engine.ProcessSets().size(), size_t{2});
    });
  }
}

// Collectives and messages of all kinds are in flight when their set is left, and the next one is
// made and left meanwhile.
TEST(LeftSets, LoseNothingThatIsInFlight) {
  constexpr int kSize = 3;
  for (const Wires wires : kAllWires) {
    Cluster cluster(kSize, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int round = 0; round < 20; ++round) {
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2}, kPatienceUs, nullptr, &id));
        std::vector<HandlePtr> handles;
        std::vector<std::vector<float>> sums;
        std::vector<Bytes> sent;
        std::vector<Bytes> received;
        const std::vector<size_t> sizes = {100, 20'000, 300'000};
        sums.reserve(sizes.size());
        for (const size_t bytes : sizes) {
          sent.push_back(Content(bytes, rank));
          received.emplace_back(bytes);
        }
        if (round % kSize == rank) usleep(1'000);
        for (size_t i = 0; i < sizes.size(); ++i) {
          const auto tag = static_cast<int64_t>(i);
          sums.emplace_back(sizes[i], 1.0f);
          Entry sum = AllreduceEntry(std::to_string(i), &sums[i], ReduceOp::kSum, id);
          ASSERT_OK(Submit(engine, std::move(sum), &handles.emplace_back()));
          ASSERT_OK(Submit(engine, SendEntry(&sent[i], (rank + 1) % kSize, tag, id),
                           &handles.emplace_back()));
          ASSERT_OK(Submit(engine, RecvEntry(&received[i], (rank + 2) % kSize, tag, id),
                           &handles.emplace_back()));
        }
        ASSERT_OK(engine.LeaveProcessSet(id));
        UseAndLeave(engine, rank, {0, 1, 2}, 10);
        for (const HandlePtr& handle : handles)
          ASSERT_OK(engine.Wait(handle, kPatienceUs, nullptr));
        for (size_t i = 0; i < sizes.size(); ++i) {
          EXPECT_EQ(sums[i].back(), 3.0f);
          EXPECT_TRUE(received[i] == Content(sizes[i], (rank + 2) % kSize));
        }
      }
    });
  }
}

// A small message may be on its way when its sender leaves.
TEST(LeftSets, DeliverTheirMessages) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int round = 0; round < 20; ++round) {
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet({0, 1}, kPatienceUs, nullptr, &id));
        Bytes data = Content(100, 0);
        if (rank == 1) data.assign(100, 0);
        ASSERT_OK(Run(engine, MessageEntry(rank == 0, &data, 1 - rank, 7, id)));
        EXPECT_TRUE(data == Content(100, 0));
        ASSERT_OK(engine.LeaveProcessSet(id));
      }
    });
  }
}

// A large one waits at its sender until its receiver says that it wants it, or that it never will.
TEST(LeftSets, LetSendersGoWhoseMessagesNobodyReceives) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (const bool sent_before : {true, false}) {
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet({0, 1}, kPatienceUs, nullptr, &id));
        Bytes data(5 << 20);
        Bytes word(8);
        HandlePtr handle;
        if (rank == 1 && !sent_before) ASSERT_OK(engine.LeaveProcessSet(id));
        ASSERT_OK(Barrier(engine));
        if (rank == 0) ASSERT_OK(Submit(engine, SendEntry(&data, 1, 7, id), &handle));
        ASSERT_OK(Run(engine, MessageEntry(rank == 0, &word, 1 - rank, 8, 0)));
        if (rank == 1 && sent_before) ASSERT_OK(engine.LeaveProcessSet(id));
        if (rank == 0) {
          ASSERT_OK(engine.Wait(handle, kMessageLimitUs, nullptr));
          ASSERT_OK(engine.LeaveProcessSet(id));
        }
        ASSERT_OK(Barrier(engine));
      }
    });
  }
}

TEST(LeftSets, AreThoseThatAllRanksHaveNotMade) {
  Cluster cluster(2, Wires::kShm);
  cluster.Run([&](Engine& engine, int) {
    uint32_t id = 0;
    ASSERT_OK(engine.AddProcessSet({0, 1}, &id));
    for (const uint32_t other : {uint32_t{0}, id, uint32_t{5}, uint32_t{1} << 31})
      EXPECT_TRUE(engine.LeaveProcessSet(other).code() == Code::kInvalidArgument);
    ASSERT_OK(Barrier(engine, id));
  });
}

// The memory that is reserved for a meeting which fails is free again.
TEST(LeftSets, LeaveNothingWhereAMemberDoesNotCome) {
  for (const Wires wires : {Wires::kShm, Wires::kHosts}) {
    Cluster cluster(2, wires, {}, {}, {0, 0});
    int64_t before = 0;
    cluster.Run([&](Engine& engine, int rank) {
      uint32_t id = 0;
      for (int i = 0; rank == 0 && i < 120; ++i) {
        if (i == 20) before = SharedBytes();
        EXPECT_FALSE(engine.AddOwnProcessSet({0, 1}, 5'000, nullptr, &id).ok());
      }
      if (rank == 0) EXPECT_TRUE(SharedBytes() < before + (int64_t{10} << 20));
      ASSERT_OK(Barrier(engine));
      UseAndLeave(engine, rank, {0, 1}, 1000);
    });
  }
}

}  // namespace
}  // namespace hvd::test
