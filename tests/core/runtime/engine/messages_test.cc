// Sends and receives between ranks, on every wiring. message_programs_test.cc has random ones.

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "check.h"
#include "cluster.h"
#include "runtime/engine/messages.h"
#include "runtime/peer/peer.h"

namespace hvd::test {
namespace {

TEST(Messages, ArriveOnEveryWiring) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3, 4}) {
      Cluster cluster(size, wires);
      cluster.Run([&](Engine& engine, int rank) {
        const int next = (rank + 1) % size;
        const int previous = (rank + size - 1) % size;
        for (const size_t bytes : MessageSizes()) {
          Bytes mine = Content(bytes, rank);
          Bytes theirs(bytes);
          HandlePtr sent;
          HandlePtr received;
          ASSERT_OK(Submit(engine, SendEntry(&mine, next), &sent));
          ASSERT_OK(Run(engine, RecvEntry(&theirs, previous), &received));
          ASSERT_OK(engine.Wait(sent, kMessageLimitUs, nullptr));
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
        ASSERT_OK(engine.Wait(received, kMessageLimitUs, nullptr));
        ASSERT_OK(engine.Wait(sent, kMessageLimitUs, nullptr));
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
        ASSERT_OK(engine.Wait(handles[i], kMessageLimitUs, nullptr));
        if (rank == 1) EXPECT_TRUE(data[i] == Content(kBytes, i));
      }
    });
  }
}

// As many as may wait have been sent, and a few of them are met: there is room for others.
TEST(Messages, HaveRoomAsSoonAsOneOfTooManyIsMet) {
  constexpr auto kMany = static_cast<int>(peer::kMostUnmatched);
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(8);
      std::vector<HandlePtr> sent(kMany + 1);
      if (rank == 0) {
        for (int i = 0; i <= kMany; ++i)
          ASSERT_OK(Submit(engine, SendEntry(&data, 1, i == kMany ? 1 : 0), &sent[i]));
        for (const HandlePtr& handle : sent)
          ASSERT_OK(engine.Wait(handle, kMessageLimitUs, nullptr));
        return;
      }
      for (int i = 0; i < 10; ++i) ASSERT_OK(Run(engine, RecvEntry(&data, 0)));
      HandlePtr late;
      ASSERT_OK(Submit(engine, RecvEntry(&data, 0, 1), &late));
      EXPECT_TRUE(engine.Wait(late, kMessageLimitUs, nullptr).ok());
      for (int i = 10; i < kMany; ++i) ASSERT_OK(Run(engine, RecvEntry(&data, 0)));
    });
  }
}

// Each receive takes what has come before it, so its rank never listens.
TEST(Messages, HaveRoomWhenAllThatWaitedAreMetAtOnce) {
  constexpr auto kMany = static_cast<int>(peer::kMostUnmatched);
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    std::atomic<bool> all_left{false};
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(8);
      if (rank == 0) {
        for (int i = 0; i < kMany; ++i)
          ASSERT_OK(Run(engine, SendEntry(&data, 1, i == kMany - 1 ? 1 : 0)));
        HandlePtr last;
        ASSERT_OK(Submit(engine, SendEntry(&data, 1, 2), &last));
        EXPECT_TRUE(engine.Wait(last, kMessageLimitUs, nullptr).ok());
        all_left = true;
        return;
      }
      ASSERT_OK(Run(engine, RecvEntry(&data, 0, 1)));
      for (int i = 1; i < kMany; ++i) ASSERT_OK(Run(engine, RecvEntry(&data, 0)));
      for (int i = 0; i < kPatienceMs && !all_left; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(all_left);
      ASSERT_OK(Run(engine, RecvEntry(&data, 0, 2)));
    });
  }
}

// Fewer than may wait do so, at a rank that looks away: it waits for something else meanwhile.
TEST(Messages, HaveRoomWhileTheirReceiverIsInACollective) {
  constexpr auto kMany = static_cast<int>(peer::kMostUnmatched);
  for (const Wires wires : kAllWires) {
    Cluster cluster(2, wires);
    std::atomic<bool> one_is_met{false};
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(8);
      if (rank == 1) {
        ASSERT_OK(Run(engine, RecvEntry(&data, 0)));
        one_is_met = true;
        EXPECT_TRUE(Barrier(engine).ok());
        for (int i = 0; i < kMany; ++i) ASSERT_OK(Run(engine, RecvEntry(&data, 0)));
        return;
      }
      for (int i = 0; i < 10; ++i) ASSERT_OK(Run(engine, SendEntry(&data, 1)));
      for (int i = 0; i < kPatienceMs && !one_is_met; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (int i = 10; i <= kMany; ++i) ASSERT_OK(Run(engine, SendEntry(&data, 1)));
      EXPECT_TRUE(Barrier(engine).ok());
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
    if (rank == 1) ASSERT_OK(engine.Wait(handle, kMessageLimitUs, nullptr));
    EXPECT_TRUE(data == Content(100, 3));
  });
}

TEST(Messages, ThatAllRanksWaitForAreADeadlock) {
  Config config;
  config.stall_deadlock_seconds = 0.4;
  for (const Wires wires : {Wires::kShm, Wires::kTcp}) {
    Cluster cluster(3, wires, {}, config);
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(100);
      ASSERT_OK(Barrier(engine));
      const Status status = Run(engine, RecvEntry(&data, (rank + 1) % 3, 7));
      EXPECT_EQ(status.code(), Code::kAborted);
      const std::string own = "recv from rank " + std::to_string((rank + 1) % 3) + " (tag 7)";
      for (const std::string& part : {"'" + own + "' was not completed",
                                      std::string("deadlock: every rank waits in the library"),
                                      std::string(" waits for 'recv from rank ")})
        EXPECT_TRUE(status.message().find(part) != std::string::npos);
    });
  }
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
    const Status status = engine.Wait(handle, kMessageLimitUs, nullptr);
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(status.message().find("recv from rank") != std::string::npos);
  });
}

// A rank that waits for a message submits nothing more: it must not hold up, at a gate, the rank
// whose message that is.
TEST(Messages, ComeWhileTheirReceiverLacksAPartOfALearnedBatch) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> a(10, 1);
      std::vector<float> b(10, 1);
      Bytes data = rank == 1 ? Content(100, 5) : Bytes(100);
      for (int step = 0; step < 40; ++step) {
        const bool between = step % 20 == 19;
        HandlePtr first;
        HandlePtr second;
        ASSERT_OK(Submit(engine, AllreduceEntry("a", &a), &first));
        if (between && rank == 0) ASSERT_OK(Run(engine, RecvEntry(&data, 1)));
        ASSERT_OK(Submit(engine, AllreduceEntry("b", &b), &second));
        ASSERT_OK(engine.Wait(first, kMessageLimitUs, nullptr));
        if (between && rank == 1) ASSERT_OK(Run(engine, SendEntry(&data, 0)));
        ASSERT_OK(engine.Wait(second, kMessageLimitUs, nullptr));
      }
      EXPECT_TRUE(engine.CountersNow().at("scheduled") > 0);
      if (rank < 2) EXPECT_TRUE(data == Content(100, 5));
    });
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
  for (const Wires wires : {Wires::kShm, Wires::kTcp, Wires::kHosts}) {
    Cluster cluster(3, wires);
    std::atomic<bool> cut{false};
    cluster.Run([&](Engine& engine, int rank) {
      Bytes data(100);
      ASSERT_OK(Barrier(engine));
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cut = true;
        cluster.CutLinks(2);
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
  for (const Wires wires : {Wires::kShm, Wires::kTcp, Wires::kHosts}) {
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
