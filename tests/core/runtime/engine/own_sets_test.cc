// Process sets that their members make by themselves.

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "check.h"
#include "cluster.h"
#include "runtime/engine/meeting.h"
#include "runtime/engine/messages.h"
#include "runtime/engine/set_registry.h"
#include "runtime/peer/peer.h"

namespace hvd::test {
namespace {

constexpr int64_t kPatienceUs = 60'000'000;

bool Belongs(int rank, const std::vector<int>& members) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

float SumOf(const std::vector<int>& members) {
  float sum = 0;
  for (const int member : members) sum += static_cast<float>(member + 1);
  return sum;
}

std::vector<int> Draw(std::mt19937* random, int size) {
  std::vector<int> members;
  while (members.empty()) {
    for (int rank = 0; rank < size; ++rank) {
      if ((*random)() % 2 == 0) members.push_back(rank);
    }
  }
  return members;
}

// Nobody but the members calls, the same ranks may make several, and those of the whole job keep
// their numbers.
TEST(OwnSets, AreMadeByTheirMembersAlone) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(5, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(11);  // the same choices on every rank
      std::set<uint32_t> numbers;
      for (int round = 0; round < 20; ++round) {
        const std::vector<int> members = Draw(&random, 5);
        if (!Belongs(rank, members)) continue;
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet(members, kPatienceUs, nullptr, &id));
        EXPECT_TRUE(numbers.insert(id).second);
        EXPECT_TRUE(id >= SetRegistry::kFirstOwn);
        for (const size_t elements : {size_t{3}, size_t{200000}}) {
          std::vector<float> data(elements, static_cast<float>(rank + 1));
          ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
          EXPECT_EQ(data.back(), SumOf(members));
        }
      }
      uint32_t id = 0;
      ASSERT_OK(engine.AddProcessSet({1, 3}, &id));
      EXPECT_EQ(id, uint32_t{1});
    });
  }
}

// Whoever computes elsewhere meanwhile is not needed.
TEST(OwnSets, NeedNobodyElse) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(4, wires);
    cluster.Run([&](Engine& engine, int rank) {
      if (rank == 0 || rank == 2) {
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet({0, 2}, kPatienceUs, nullptr, &id));
        std::vector<float> data(1, static_cast<float>(rank + 1));
        ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
        EXPECT_EQ(data[0], 4.0f);
      }
      ASSERT_OK(Barrier(engine));
    });
  }
}

TEST(OwnSets, NameWhoDoesNotCome) {
  for (const Wires wires : {Wires::kShm, Wires::kHosts}) {
    for (const int absent : {0, 1, 2}) {
      Cluster cluster(3, wires);
      cluster.Run([&](Engine& engine, int rank) {
        uint32_t id = 0;
        if (rank != absent) {
          const Status status = engine.AddOwnProcessSet({0, 1, 2}, 2'000'000, nullptr, &id);
          const std::string culprit =
              "rank " + std::to_string(absent) + " has not come within 2.0 s";
          EXPECT_TRUE(status.code() == Code::kUnavailable);
          EXPECT_TRUE(status.message().find(culprit) != std::string::npos);
        }
        ASSERT_OK(Barrier(engine));
        // Who was too late goes on to the meeting at which the others are.
        ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2}, kPatienceUs, nullptr, &id));
        ASSERT_OK(Barrier(engine, id));
      });
    }
  }
}

// Of a meeting that did not take place nothing is left that waits for anybody.
TEST(OwnSets, LeaveNothingInFlightWhenAMemberDoesNotCome) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      uint32_t id = 0;
      if (rank == 0) {
        EXPECT_FALSE(engine.AddOwnProcessSet({0, 1}, 100'000, nullptr, &id).ok());
        EXPECT_TRUE(engine.InFlight(0).empty());
      }
      ASSERT_OK(Barrier(engine));
      if (rank == 1) return engine.Shutdown();
      usleep(2'500'000);  // longer than a rank that has left may be waited for
      ASSERT_OK(engine.AddOwnProcessSet({0}, kPatienceUs, nullptr, &id));
      ASSERT_OK(Barrier(engine, id));
    });
  }
}

// Who has said yes waits for the verdict, however little patience it has for those who come.
TEST(OwnSets, AreMadeEverywhereOrNowhere) {
  for (const Wires wires : {Wires::kShm, Wires::kHosts}) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      if (rank == 2) usleep(700'000);
      uint32_t id = 0;
      const int64_t patience = rank == 1 ? 200'000 : kPatienceUs;
      ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2}, patience, nullptr, &id));
      ASSERT_OK(Barrier(engine, id));
    });
  }
}

TEST(OwnSets, RefuseOthersAndImpossibleMembers) {
  Cluster cluster(2, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    uint32_t id = 0;
    for (const std::vector<int>& members :
         std::vector<std::vector<int>>{{}, {0, 0}, {0, 2}, {1 - rank}})
      EXPECT_TRUE(engine.AddOwnProcessSet(members, kPatienceUs, nullptr, &id).code() ==
                  Code::kInvalidArgument);
    ASSERT_OK(engine.AddOwnProcessSet({rank}, kPatienceUs, nullptr, &id));
    ASSERT_OK(Barrier(engine, id));
  });
}

// Several threads of a rank, each with sets of its own.
TEST(OwnSets, AreMadeByThreadsSideBySide) {
  Cluster cluster(3, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    const std::vector<std::vector<int>> sets = {{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
    std::vector<std::thread> threads;
    for (const std::vector<int>& members : sets) {
      if (!Belongs(rank, members)) continue;
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          uint32_t id = 0;
          ASSERT_OK(engine.AddOwnProcessSet(members, kPatienceUs, nullptr, &id));
          std::vector<float> data(1, static_cast<float>(rank + 1));
          ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
          EXPECT_EQ(data[0], SumOf(members));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Whoever comes late, and however often the others have tried: they come together in the end.
TEST(OwnSets, AreMadeWhenAllTryAgain) {
  Cluster cluster(4, Wires::kHosts);
  cluster.Run([&](Engine& engine, int rank) {
    std::mt19937 random(5);  // the same choices on every rank
    for (int round = 0; round < 6; ++round) {
      uint32_t id = 0;
      for (int failures = 0; failures < 2; ++failures) {
        std::vector<int> here = Draw(&random, 4);
        if (here.size() == 4) here.pop_back();
        if (Belongs(rank, here)) {
          EXPECT_FALSE(engine.AddOwnProcessSet({0, 1, 2, 3}, 50'000, nullptr, &id).ok());
        }
        ASSERT_OK(Barrier(engine));
      }
      ASSERT_OK(engine.AddOwnProcessSet({0, 1, 2, 3}, kPatienceUs, nullptr, &id));
      std::vector<float> data(1, static_cast<float>(rank + 1));
      ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, id));
      EXPECT_EQ(data[0], 10.0f);
    }
  });
}

// All that a rank may have under way to another is: what the engine itself says has room.
TEST(OwnSets, AreMadeBesideMessagesThatNobodyReceives) {
  constexpr int kCount = 5000;
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(300);
      std::vector<HandlePtr> sent(kCount);
      for (HandlePtr& handle : sent) ASSERT_OK(Submit(engine, SendEntry(&data, 1 - rank), &handle));
      ASSERT_OK(engine.Wait(sent.front(), kPatienceUs, nullptr));
      for (int i = 0; i < 3; ++i) {
        uint32_t id = 0;
        ASSERT_OK(engine.AddOwnProcessSet({0, 1}, 5'000'000, nullptr, &id));
        ASSERT_OK(Barrier(engine, id));
      }
      Bytes received(300);
      for (int i = 0; i < kCount; ++i) ASSERT_OK(Run(engine, RecvEntry(&received, 1 - rank)));
      for (const HandlePtr& handle : sent) ASSERT_OK(engine.Wait(handle, kPatienceUs, nullptr));
    });
  }
}

// More meetings than a rank may have notes of under way, to none of which the other has come yet.
TEST(OwnSets, AreMadeAfterVeryManyMeetingsWithoutAMember) {
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      uint32_t id = 0;
      for (uint32_t i = 0; rank == 0 && i < peer::kMostNotes + 100; ++i)
        EXPECT_FALSE(engine.AddOwnProcessSet({0, 1}, 100, nullptr, &id).ok());
      ASSERT_OK(Barrier(engine));
      ASSERT_OK(engine.AddOwnProcessSet({0, 1}, kPatienceUs, nullptr, &id));
      ASSERT_OK(Barrier(engine, id));
    });
  }
}

// A meeting over messages in memory.
class Meetings {
 public:
  std::vector<Status> Run(int size, int failing, const std::string& at) {
    std::vector<Status> results(static_cast<size_t>(size));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back(
          [&, rank] { results[rank] = Meet(rank, size, rank == failing ? at : ""); });
    for (std::thread& rank : ranks) rank.join();
    return results;
  }

 private:
  // Two hosts: the even ranks, and the odd ones.
  Status Meet(int rank, int size, const std::string& fails) {
    MeetingOptions options;
    options.rank = GlobalRank(rank);
    options.members = Members::Everybody(size);
    std::vector<int> companions;
    for (int other = rank % 2; other < size; other += 2) companions.push_back(other);
    options.companions = Members(companions);
    options.firsts = {GlobalRank(0), GlobalRank(1)};
    options.timeout_us = kPatienceUs;
    options.number = [] { return uint64_t{0}; };
    const uint32_t number = fails == "foreign" ? 43 : 42;
    options.discard = [=](uint32_t id) { EXPECT_EQ(id, number); };
    options.may_have_named = [](uint32_t id) { return id == 42; };
    options.close = [](const std::string& place) { EXPECT_FALSE(place.empty()); };
    const auto done = [fails](const char* what) {
      return fails == what ? Status::Invalid(std::string(what) + " fails") : Status::Ok();
    };
    options.name = [&](uint32_t* id) { return *id = number, done("name"); };
    options.reserve = [&](uint32_t id, std::string* place) {
      EXPECT_EQ(id, number);
      *place = "host " + std::to_string(rank % 2);
      return done("reserve");
    };
    options.prepare = [&](uint32_t id, const std::string& place) {
      EXPECT_EQ(id, number);
      EXPECT_TRUE(id == 42 || rank == 0);
      EXPECT_EQ(place, "host " + std::to_string(rank % 2));
      return done("prepare");
    };
    options.exchange = [&](const PeerOperation& peer, std::string* note, int64_t) {
      const GlobalRank self(rank);
      Deliver({peer.sends ? self : peer.rank, peer.sends ? peer.rank : self, peer.tag}, peer.sends,
              note);
      return Status::Ok();
    };
    uint32_t id = 0;
    return hvd::Meet(options, &id);
  }

  using Key = std::tuple<GlobalRank, GlobalRank, int64_t>;
  void Deliver(const Key& key, bool sends, std::string* note) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (sends) {
      EXPECT_TRUE(notes_.emplace(key, *note).second);
      return arrived_.notify_all();
    }
    arrived_.wait(lock, [&] { return notes_.count(key) > 0; });
    *note = notes_.at(key);
    notes_.erase(key);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Key, std::string> notes_;
};

TEST(Meeting, TellsEverybodyWhoFails) {
  for (const Status& status : Meetings().Run(6, -1, "")) EXPECT_TRUE(status.ok());
  for (const char* at : {"name", "reserve", "prepare"}) {
    for (int failing = 0; failing < 6; ++failing) {
      const bool has_it =
          at == std::string("prepare") || failing < (at == std::string("name") ? 1 : 2);
      for (const Status& status : Meetings().Run(6, failing, at)) {
        const std::string text = "rank " + std::to_string(failing) + ": " + at + " fails";
        EXPECT_EQ(status.ok(), !has_it);
        if (has_it) EXPECT_TRUE(status.message().find(text) != std::string::npos);
      }
    }
  }
}

TEST(Meeting, RefusesANumberThatIsNotTheFirstMembers) {
  for (const Status& status : Meetings().Run(6, 0, "foreign")) {
    EXPECT_TRUE(status.code() == Code::kUnavailable);
    EXPECT_TRUE(status.message().find("rank 0 gives the process set the number 43, which is not "
                                      "one of its own") != std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::test
