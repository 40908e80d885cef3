// Sends and receives between ranks, on every wiring.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};
constexpr int kAnybody = -1;

Entry MessageEntry(bool sends, Bytes* data, int rank, int64_t tag, uint32_t set) {
  Entry entry;
  entry.process_set = set;
  entry.peer = PeerOperation{sends, GlobalRank(rank), tag};
  const auto bytes = static_cast<int64_t>(data->size());
  entry.request.tensors.push_back({DataType::kUint8, {bytes}});
  entry.buffers.push_back(TensorBuffer::InPlace(data->data(), bytes));
  return entry;
}
Entry SendEntry(Bytes* data, int to, int64_t tag = 0, uint32_t set = 0) {
  return MessageEntry(true, data, to, tag, set);
}
Entry RecvEntry(Bytes* data, int from, int64_t tag = 0, uint32_t set = 0) {
  return MessageEntry(false, data, from, tag, set);
}
int64_t SourceOf(const HandlePtr& handle) {
  int64_t source;
  std::memcpy(&source, handle->outputs.front().data.get(), sizeof source);
  return source;
}

// What a message holds, so that no other one has the same.
Bytes Content(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes content(bytes);
  for (size_t i = 0; i < bytes; i += 1 + bytes / 4096) content[i] = static_cast<uint8_t>(random());
  if (bytes > 0) content.back() = static_cast<uint8_t>(seed);
  return content;
}

const std::vector<size_t>& Sizes() {
  static const std::vector<size_t> sizes{0,
                                         1,
                                         8,
                                         1023,
                                         1024,
                                         1025,
                                         16 << 10,
                                         17 << 10,
                                         64 << 10,
                                         (64 << 10) + 1,
                                         300 << 10,
                                         5 << 20,
                                         (9 << 20) + 3};
  return sizes;
}

TEST(Messages, ArriveOnEveryWiring) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3, 4}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        const int next = (rank + 1) % size;
        const int previous = (rank + size - 1) % size;
        for (const size_t bytes : Sizes()) {
          Bytes mine = Content(bytes, rank);
          Bytes theirs(bytes);
          HandlePtr sent;
          HandlePtr received;
          ASSERT_OK(Submit(engine, SendEntry(&mine, next), &sent));
          ASSERT_OK(Run(engine, RecvEntry(&theirs, previous), &received));
          ASSERT_OK(engine.Wait(sent, kLimitUs, nullptr));
          EXPECT_TRUE(theirs == Content(bytes, previous));
          EXPECT_EQ(SourceOf(received), int64_t{previous});
        }
      });
    }
  }
}

TEST(Messages, ReachTheirOwnSender) {
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{3} << 20}) {
    Cluster cluster(2, Wires::kShm);
    cluster.Run([&](Engine& engine, int rank) {
      for (const bool receive_first : {false, true}) {
        Bytes mine = Content(bytes, rank);
        Bytes theirs(bytes);
        HandlePtr sent;
        HandlePtr received;
        if (receive_first) ASSERT_OK(Submit(engine, RecvEntry(&theirs, kAnybody, 3), &received));
        ASSERT_OK(Submit(engine, SendEntry(&mine, rank, 3), &sent));
        if (!receive_first) ASSERT_OK(Submit(engine, RecvEntry(&theirs, rank, 3), &received));
        ASSERT_OK(engine.Wait(received, kLimitUs, nullptr));
        ASSERT_OK(engine.Wait(sent, kLimitUs, nullptr));
        EXPECT_TRUE(theirs == mine);
        EXPECT_EQ(SourceOf(received), int64_t{rank});
      }
    });
  }
}

TEST(Messages, OfOneRankReachItselfInAJobOfOne) {
  Cluster cluster(1, Wires::kInprocWindow);
  cluster.Run([&](Engine& engine, int) {
    Bytes mine = Content(5000, 1);
    Bytes theirs(5000);
    ASSERT_OK(Run(engine, SendEntry(&mine, 0)));
    ASSERT_OK(Run(engine, RecvEntry(&theirs, 0)));
    EXPECT_TRUE(theirs == mine);
  });
}

// Far more than a receiver keeps, and none asked for until all have been sent.
TEST(Messages, WaitAtTheirSenderBeyondWhatAReceiverKeeps) {
  constexpr int kCount = 9000;
  constexpr size_t kBytes = 600;
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<Bytes> data(kCount);
      std::vector<HandlePtr> handles(kCount);
      for (int i = 0; i < kCount; ++i) {
        data[i] = rank == 0 ? Content(kBytes, i) : Bytes(kBytes);
        Entry entry = rank == 0 ? SendEntry(&data[i], 1, i % 7) : RecvEntry(&data[i], 0, i % 7);
        ASSERT_OK(Submit(engine, std::move(entry), &handles[i]));
        if (rank == 1 && i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
      for (int i = 0; i < kCount; ++i) {
        ASSERT_OK(engine.Wait(handles[i], kLimitUs, nullptr));
        if (rank == 1) EXPECT_TRUE(data[i] == Content(kBytes, i));
      }
    });
  }
}

TEST(Messages, OfAnotherSizeAreAnErrorOfTheReceiveAlone) {
  for (const Wires wires : {Wires::kInprocWindow, Wires::kShm, Wires::kTcp}) {
    for (const size_t bytes : {size_t{100}, size_t{40} << 10, size_t{1} << 20}) {
      for (const bool early : {false, true}) {
        Cluster cluster(2, wires);
        cluster.Run([&](Engine& engine, int rank) {
          Bytes data(rank == 0 ? bytes : bytes - 1);
          HandlePtr handle;
          if (rank == 0) {
            ASSERT_OK(Run(engine, SendEntry(&data, 1, 9)));
            ASSERT_OK(Barrier(engine));
          } else {
            if (early) std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const Status status = Run(engine, RecvEntry(&data, kAnybody, 9));
            EXPECT_EQ(status.code(), Code::kMismatch);
            for (const std::string& part :
                 {std::string("rank 0"), std::string("rank 1"), std::string("tag 9"),
                  std::to_string(bytes) + " bytes", std::to_string(bytes - 1) + " bytes"})
              EXPECT_TRUE(status.message().find(part) != std::string::npos);
            ASSERT_OK(Barrier(engine));
          }
          Bytes next = rank == 0 ? Content(77, 5) : Bytes(77);
          ASSERT_OK(Run(engine, rank == 0 ? SendEntry(&next, 1, 9) : RecvEntry(&next, 0, 9)));
          EXPECT_TRUE(next == Content(77, 5));
        });
      }
    }
  }
}

TEST(Messages, AreRefusedWhereOneCallerIsWrong) {
  Cluster cluster(3, Wires::kInprocWindow, {{0, 1}});
  cluster.Run([&](Engine& engine, int rank) {
    Bytes data(8);
    HandlePtr handle;
    EXPECT_EQ(Submit(engine, SendEntry(&data, 3), &handle).code(), Code::kInvalidArgument);
    EXPECT_EQ(Submit(engine, SendEntry(&data, kAnybody), &handle).code(), Code::kInvalidArgument);
    EXPECT_EQ(Submit(engine, RecvEntry(&data, 2, 0, 1), &handle).code(), Code::kInvalidArgument);
    EXPECT_EQ(Submit(engine, RecvEntry(&data, 0, 0, 9), &handle).code(), Code::kInvalidArgument);
    if (rank == 2)
      EXPECT_EQ(Submit(engine, SendEntry(&data, 0, 0, 1), &handle).code(), Code::kInvalidArgument);
    Entry two = SendEntry(&data, 0);
    two.buffers.push_back(two.buffers.front());
    EXPECT_EQ(Submit(engine, std::move(two), &handle).code(), Code::kInvalidArgument);
    Entry shorter = RecvEntry(&data, 0);
    shorter.buffers.front().output_bytes = 7;
    EXPECT_EQ(Submit(engine, std::move(shorter), &handle).code(), Code::kInvalidArgument);
    ASSERT_OK(Barrier(engine));
  });
}

TEST(Messages, HaveALimitOfTimeAndGoOnAfterIt) {
  Cluster cluster(2, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    Bytes data = rank == 0 ? Content(100, 3) : Bytes(100);
    HandlePtr handle;
    if (rank == 1) {
      ASSERT_OK(Submit(engine, RecvEntry(&data, 0, 1), &handle));
      const Status late = engine.Wait(handle, 20000, nullptr);
      EXPECT_EQ(late.code(), Code::kTimeout);
      EXPECT_TRUE(late.message().find("recv from rank 0 (tag 1)") != std::string::npos);
    }
    ASSERT_OK(Barrier(engine));
    if (rank == 0) ASSERT_OK(Run(engine, SendEntry(&data, 1, 1)));
    if (rank == 1) ASSERT_OK(engine.Wait(handle, kLimitUs, nullptr));
    EXPECT_TRUE(data == Content(100, 3));
  });
}

TEST(Messages, EndWithTheirEngine) {
  Cluster cluster(2, Wires::kShm);
  cluster.Run([&](Engine& engine, int rank) {
    Bytes data(100);
    HandlePtr handle;
    ASSERT_OK(Submit(engine, RecvEntry(&data, 1 - rank), &handle));
    ASSERT_OK(Barrier(engine));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    engine.Shutdown();
    const Status status = engine.Wait(handle, kLimitUs, nullptr);
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(status.message().find("recv from rank") != std::string::npos);
  });
}

// A random program, drawn alike on every rank: messages of any size among any two ranks, on several
// process sets, with few tags, received in an order of their own, by receives from one rank or from
// anybody; and collectives beside them.
struct Planned {
  int from;
  int to;
  int64_t tag;
  uint32_t set;
  size_t bytes;
};

class Program {
 public:
  Program(Engine& engine, int rank, int size, unsigned seed)
      : engine_(engine), rank_(rank), size_(size), shared_(seed), own_(seed * 1000 + rank) {}

  void Run() {
    for (int batch = 0; batch < 4; ++batch) {
      Plan(batch);
      Submit();
      Check();
    }
  }

 private:
  struct Flight {
    bool sends;
    size_t planned;
    Bytes data;
    HandlePtr handle;
  };

  int Draw(int below) { return static_cast<int>(shared_() % below); }

  // A tag is received either by receives from one rank or by receives from anybody, all of one
  // size: else it depends on the time which message a receive gets.
  void Plan(int batch) {
    planned_.clear();
    const int count = 5 + Draw(40);
    for (int i = 0; i < count; ++i) {
      Planned one;
      one.set = static_cast<uint32_t>(Draw(2));
      const int members = one.set == 0 ? size_ : size_ - 1;  // set 1 has all but the last rank
      one.from = Draw(members);
      one.to = Draw(members);
      one.tag = batch * 100 + Draw(5);
      const size_t drawn = Sizes()[Draw(static_cast<int>(Sizes().size()) - 2)];
      one.bytes = Anybodys(one.tag) ? 2000 : drawn;
      planned_.push_back(one);
    }
  }
  static bool Anybodys(int64_t tag) { return tag % 100 >= 3; }

  void Submit() {
    std::vector<size_t> sends;
    std::vector<size_t> receives;
    for (size_t i = 0; i < planned_.size(); ++i) {
      if (planned_[i].from == rank_) sends.push_back(i);
      if (planned_[i].to == rank_) receives.push_back(i);
    }
    flights_.clear();
    flights_.reserve(sends.size() + receives.size());
    reduced_.assign(3000, 1.0f);
    size_t s = 0;
    size_t r = 0;
    const size_t at = own_() % (sends.size() + receives.size() + 1);
    for (size_t i = 0; i <= sends.size() + receives.size(); ++i) {
      if (i == at)
        ASSERT_OK(test::Submit(engine_, AllreduceEntry("beside", &reduced_), &allreduce_));
      if (i == sends.size() + receives.size()) break;
      const bool sending = r == receives.size() || (s < sends.size() && own_() % 2 == 0);
      Start(sending, sending ? sends[s++] : receives[r++]);
    }
  }

  void Start(bool sending, size_t index) {
    const Planned& one = planned_[index];
    Flight& flight = flights_.emplace_back();
    flight.sends = sending;
    flight.planned = index;
    flight.data = sending ? Content(one.bytes, static_cast<unsigned>(index)) : Bytes(one.bytes);
    Entry entry = sending ? SendEntry(&flight.data, one.to, one.tag, one.set)
                          : RecvEntry(&flight.data, Anybodys(one.tag) ? kAnybody : one.from,
                                      one.tag, one.set);
    ASSERT_OK(test::Submit(engine_, std::move(entry), &flight.handle));
  }

  void Check() {
    std::vector<size_t> order(flights_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), own_);
    for (const size_t i : order) ASSERT_OK(engine_.Wait(flights_[i].handle, kLimitUs, nullptr));
    ASSERT_OK(engine_.Wait(allreduce_, kLimitUs, nullptr));
    EXPECT_EQ(reduced_.front(), static_cast<float>(size_));
    // What each source has sent with a tag comes in the order of sending.
    std::map<std::tuple<int, uint32_t, int64_t>, std::vector<size_t>> expected;
    for (size_t i = 0; i < planned_.size(); ++i) {
      const Planned& one = planned_[i];
      if (one.to == rank_) expected[{one.from, one.set, one.tag}].push_back(i);
    }
    for (const Flight& flight : flights_) {
      if (flight.sends) continue;
      const Planned& one = planned_[flight.planned];
      const int source = static_cast<int>(SourceOf(flight.handle));
      if (!Anybodys(one.tag)) EXPECT_EQ(source, one.from);
      auto& from = expected[{source, one.set, one.tag}];
      ASSERT_TRUE(!from.empty());
      EXPECT_TRUE(flight.data == Content(one.bytes, static_cast<unsigned>(from.front())));
      from.erase(from.begin());
    }
    for (const auto& [key, left] : expected) EXPECT_TRUE(left.empty());
  }

  Engine& engine_;
  const int rank_;
  const int size_;
  std::mt19937 shared_;
  std::mt19937 own_;
  std::vector<Planned> planned_;
  std::vector<Flight> flights_;
  std::vector<float> reduced_;
  HandlePtr allreduce_;
};

TEST(Messages, OfRandomProgramsComeInOrder) {
  for (const Wires wires : kAllWires) {
    for (unsigned seed = 0; seed < 12; ++seed) {
      const int size = 2 + static_cast<int>(seed) % 3;
      std::vector<int> members(size - 1);
      std::iota(members.begin(), members.end(), 0);
      Cluster cluster(size, wires, {members});
      cluster.Run([&](Engine& engine, int rank) { Program(engine, rank, size, seed).Run(); });
    }
  }
}

// What nobody has received goes with its process set, and holds nothing up.
TEST(Messages, OfASetThatIsRemovedAreDropped) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int round = 0; round < 3; ++round) {
        uint32_t set = 0;
        ASSERT_OK(engine.AddProcessSet({0, 1}, &set));
        Bytes lost = Content(500, 1);
        if (rank == 0) {
          for (int i = 0; i < 10; ++i) ASSERT_OK(Run(engine, SendEntry(&lost, 1, i, set)));
        }
        ASSERT_OK(engine.RemoveProcessSet(set));
        Bytes data = rank == 0 ? Content(500, 2) : Bytes(500);
        if (rank == 0) ASSERT_OK(Run(engine, SendEntry(&data, 1, 0)));
        if (rank == 1) ASSERT_OK(Run(engine, RecvEntry(&data, 0, 0)));
        if (rank < 2) EXPECT_TRUE(data == Content(500, 2));
      }
    });
  }
}

// A rank that dies, or leaves, while another waits for a message of its.
TEST(Messages, FailWithTheCauseWhenTheirSenderDies) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    std::atomic<bool> cut{false};
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(100);
      ASSERT_OK(Barrier(engine));
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cluster.CutLinks(2);
        cut = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        return;
      }
      const Status status = Run(engine, RecvEntry(&data, rank == 0 ? 2 : kAnybody));
      EXPECT_EQ(status.code(), Code::kAborted);
      EXPECT_TRUE(cut);
      EXPECT_TRUE(status.message().find("rank 2") != std::string::npos);
    });
  }
}

TEST(Messages, FailWhenTheirSenderHasLeft) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(100);
      ASSERT_OK(Barrier(engine));
      if (rank == 2) return engine.Shutdown();
      if (rank == 1) {  // of nobody who has left
        ASSERT_OK(Run(engine, RecvEntry(&data, 0, 1)));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ASSERT_OK(Run(engine, SendEntry(&data, 1, 1)));
      const Status status = Run(engine, RecvEntry(&data, 2));
      EXPECT_EQ(status.code(), Code::kAborted);
      EXPECT_TRUE(status.message().find("rank 2") != std::string::npos);
    });
  }
}

}  // namespace
}  // namespace hvd::test
