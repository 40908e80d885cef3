#pragma once

// What every Transport must do. A test program gives a maker per implementation and registers the
// suite.

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "transport/transport.h"
#include "transport/transport_ranks.h"

namespace hvd::test {

// One transport per rank, connected to all others; wakers[rank] is that rank's.
using Transports = std::vector<std::unique_ptr<Transport>>;
using MakeTransports = std::function<Transports(const std::vector<Waker>& wakers)>;

// One rank of a test: its transport and the ways to drive it.
class Driver {
 public:
  Driver(Transport& transport, const Waker& waker) : transport_(transport), waker_(waker) {}
  Transport* operator->() { return &transport_; }

  // Moves until `done` holds, asleep while there is nothing to do; false on an error or a time-out.
  bool Until(const std::function<bool()>& done) {
    while (!done()) {
      bool moved = false;
      status = transport_.Progress(&moved);
      if (!status.ok()) return false;
      if (moved || done()) continue;
      if (!Awaken(kPatienceMs)) return false;
    }
    return true;
  }

  bool All(const std::deque<Transfer>& transfers) {
    return Until([&] {
      return std::all_of(transfers.begin(), transfers.end(), [](auto& t) { return t.done; });
    });
  }

  // Moves until nothing moves for a while; whatever can arrive has arrived then.
  void Settle() {
    bool moved = true;
    while (status.ok() && (moved || Awaken(50))) status = transport_.Progress(&moved);
  }

  bool Awaken(int timeout_ms) {
    const bool woken =
        Readable(transport_.poll_fd() >= 0 ? transport_.poll_fd() : waker_.fd(), timeout_ms);
    waker_.Drain();
    return woken;
  }

  Status status;

 private:
  Transport& transport_;
  const Waker& waker_;
};

inline void OnTransports(const MakeTransports& make, int size,
                         const std::function<void(Driver&)>& body) {
  const std::vector<Waker> wakers(size);
  const Transports transports = make(wakers);
  RunRanks(size, [&](int rank) {
    ASSERT_TRUE(transports[rank] != nullptr);
    EXPECT_EQ(transports[rank]->rank(), GlobalRank(rank));
    EXPECT_EQ(transports[rank]->size(), size);
    Driver driver(*transports[rank], wakers[rank]);
    body(driver);
  });
}

inline int Self(Driver& rank) { return rank->rank().value(); }

inline std::vector<uint8_t> Payload(uint64_t seed, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (uint8_t& byte : data)
    byte = (state = state * 6364136223846793005u + 1442695040888963407u) >> 56;
  return data;
}

// Messages of random sizes between all pairs; the receives are posted in another order than the
// sends.
inline void RandomSizes(const MakeTransports& make) {
  constexpr int kMessages = 12;
  const auto bytes_of = [](int from, int to, int i) -> size_t {
    std::mt19937 random(from * 10'000 + to * 100 + i);
    const size_t limits[] = {1, 64, 5000, 20'000, 300'000, 3 << 20};
    return random() % limits[random() % 6];
  };
  for (int size = 1; size <= 4; ++size) {
    OnTransports(make, size, [&](Driver& rank) {
      const int self = Self(rank);
      std::deque<Transfer> transfers;
      std::vector<std::vector<uint8_t>> sent, received;
      for (int peer = 0; peer < size; ++peer) {
        for (int i = 0; i < kMessages && peer != self; ++i) {
          sent.push_back(Payload(self * 1000 + peer * 100 + i, bytes_of(self, peer, i)));
          rank->Send(GlobalRank(peer), {1, 7, uint32_t(i)}, sent.back().data(), sent.back().size(),
                     &transfers.emplace_back());
        }
      }
      std::vector<std::pair<int, int>> order;
      for (int peer = 0; peer < size; ++peer) {
        for (int i = 0; i < kMessages && peer != self; ++i) order.emplace_back(peer, i);
      }
      std::shuffle(order.begin(), order.end(), std::mt19937(self));
      const size_t first = transfers.size();
      for (const auto& [peer, i] : order) {
        received.emplace_back(bytes_of(peer, self, i) + 3, 0xEE);
        auto& buffer = received.back();
        rank->Recv(GlobalRank(peer), {1, 7, uint32_t(i)}, buffer.data(), buffer.size(),
                   &transfers.emplace_back());
      }
      EXPECT_TRUE(rank.All(transfers));
      for (size_t m = 0; m < order.size(); ++m) {
        const auto [peer, i] = order[m];
        auto expected = Payload(peer * 1000 + self * 100 + i, bytes_of(peer, self, i));
        EXPECT_EQ(transfers[first + m].bytes, expected.size());
        expected.resize(expected.size() + 3, 0xEE);
        EXPECT_TRUE(received[m] == expected);
      }
    });
  }
}

// A frame nobody waits for holds back what follows it in its set, wakes nobody while it does, and
// passes once its receive is posted.
inline void HeldBack(const MakeTransports& make) {
  std::atomic<bool> arrived{false};
  OnTransports(make, 2, [&](Driver& rank) {
    const int peer = 1 - Self(rank);
    std::deque<Transfer> transfers;
    const auto first = Payload(1, 40'000), second = Payload(2, 10);
    std::vector<uint8_t> a(40'000), b(10), hello(1);
    if (Self(rank) == 0) {
      rank->Send(GlobalRank(peer), {1, 1, 0}, first.data(), first.size(),
                 &transfers.emplace_back());
      rank->Send(GlobalRank(peer), {1, 2, 0}, second.data(), second.size(),
                 &transfers.emplace_back());
      EXPECT_TRUE(rank.All(transfers));
      arrived = true;
      rank->Recv(GlobalRank(peer), {3, 0, 0}, hello.data(), 1, &transfers.emplace_back());
      EXPECT_TRUE(rank.All(transfers));
      return;
    }
    Transfer& of_second = transfers.emplace_back();
    rank->Recv(GlobalRank(peer), {1, 2, 0}, b.data(), b.size(), &of_second);
    while (!arrived) std::this_thread::yield();
    rank.Settle();
    EXPECT_TRUE(rank.status.ok());
    EXPECT_FALSE(of_second.done);
    EXPECT_FALSE(rank.Awaken(20));
    rank->Recv(GlobalRank(peer), {1, 1, 0}, a.data(), a.size(), &transfers.emplace_back());
    rank->Send(GlobalRank(peer), {3, 0, 0}, hello.data(), 1, &transfers.emplace_back());
    EXPECT_TRUE(rank.All(transfers));
    EXPECT_TRUE(a == first && b == second);
  });
}

// Frames of one set, many more than a socket holds, make way for what another set waits for behind
// them; they are whole when their receives are posted at last. Frames of a set that is no more are
// dropped.
inline void OtherSetsPass(const MakeTransports& make) {
  constexpr uint32_t kFrames = 40;
  const auto bytes_of = [](uint32_t i) { return i % 5 == 0 ? i % 2 : size_t{300'000}; };
  constexpr uint32_t kGone = 9;
  OnTransports(make, 2, [&](Driver& rank) {
    std::deque<Transfer> transfers;
    std::vector<std::vector<uint8_t>> frames(kFrames);
    std::vector<uint8_t> other(7);
    if (Self(rank) == 0) {
      for (uint32_t i = 0; i < kFrames; ++i) {
        frames[i] = Payload(i, bytes_of(i));
        const uint32_t set = i % 7 == 3 ? kGone : 1;
        rank->Send(GlobalRank(1), {set, 1, i}, frames[i].data(), frames[i].size(),
                   &transfers.emplace_back());
      }
      other = Payload(99, 7);
      rank->Send(GlobalRank(1), {2, 1, 0}, other.data(), other.size(), &transfers.emplace_back());
      EXPECT_TRUE(rank.All(transfers));
      return;
    }
    rank->Forget(kGone);
    rank->Recv(GlobalRank(0), {2, 1, 0}, other.data(), other.size(), &transfers.emplace_back());
    EXPECT_TRUE(rank.All(transfers));
    EXPECT_TRUE(other == Payload(99, 7));
    for (uint32_t i = 0; i < kFrames; ++i) {
      if (i % 7 == 3) continue;
      frames[i].resize(bytes_of(i) + 1);
      rank->Recv(GlobalRank(0), {1, 1, i}, frames[i].data(), frames[i].size(),
                 &transfers.emplace_back());
    }
    EXPECT_TRUE(rank.All(transfers));
    for (uint32_t i = 0, t = 1; i < kFrames; ++i) {
      if (i % 7 == 3) continue;
      frames[i].resize(transfers[t++].bytes);
      EXPECT_TRUE(frames[i] == Payload(i, bytes_of(i)));
    }
  });
}

// Everybody sends much more than any buffer holds before anybody receives.
inline void BothWays(const MakeTransports& make) {
  OnTransports(make, 3, [](Driver& rank) {
    constexpr size_t kBytes = 3 << 20;
    std::deque<Transfer> transfers;
    const auto mine = Payload(Self(rank), kBytes);
    std::vector<std::vector<uint8_t>> received(3 * 8);
    for (uint32_t i = 0; i < 8; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != Self(rank))
          rank->Send(GlobalRank(peer), {0, 9, i}, mine.data(), kBytes, &transfers.emplace_back());
      }
    }
    rank.Settle();  // until the buffers are full
    for (uint32_t i = 0; i < 8; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        auto& buffer = received[peer * 8 + i];
        if (peer == Self(rank)) continue;
        buffer.resize(kBytes);
        rank->Recv(GlobalRank(peer), {0, 9, i}, buffer.data(), kBytes, &transfers.emplace_back());
      }
    }
    EXPECT_TRUE(rank.All(transfers));
    for (int peer = 0; peer < 3; ++peer) {
      const auto expected = Payload(peer, kBytes);
      for (int i = 0; i < 8 && peer != Self(rank); ++i)
        EXPECT_TRUE(received[peer * 8 + i] == expected);
    }
  });
}

// A small message goes to and fro between two ranks that sleep while they wait.
inline void PingPong(const MakeTransports& make) {
  OnTransports(make, 2, [](Driver& rank) {
    const int peer = 1 - Self(rank);
    for (uint64_t round = 0; round < 2000; ++round) {
      Transfer sent, got;
      uint64_t value = round * 3, answer = 0;
      rank->Recv(GlobalRank(peer), {0, round, 0}, &answer, sizeof answer, &got);
      if (Self(rank) == 1) {
        ASSERT_TRUE(rank.Until([&] { return got.done; }));
        value = answer + 1;
      }
      rank->Send(GlobalRank(peer), {0, round, 0}, &value, sizeof value, &sent);
      ASSERT_TRUE(rank.Until([&] { return sent.done && got.done; }));
      ASSERT_EQ(answer, round * 3 + 1 - Self(rank));
    }
  });
}

// What a peer sent before it closed arrives; what is expected beyond that is an error that names
// it.
inline void ClosedPeer(const MakeTransports& make) {
  OnTransports(make, 3, [](Driver& rank) {
    uint32_t value = 77;
    Transfer transfer;
    if (Self(rank) == 1) {
      rank->Send(GlobalRank(0), {0, 1, 0}, &value, sizeof value, &transfer);
      EXPECT_TRUE(rank.Until([&] { return transfer.done; }));
    }
    if (Self(rank) != 0) return rank->Close(0);
    value = 0;
    rank.Settle();
    EXPECT_TRUE(rank.status.ok());
    rank->Recv(GlobalRank(1), {0, 1, 0}, &value, sizeof value, &transfer);
    EXPECT_TRUE(rank.Until([&] { return transfer.done; }));
    EXPECT_EQ(value, 77u);
    EXPECT_EQ(rank->lost_peer(), GlobalRank());
    Transfer never;
    rank->Recv(GlobalRank(1), {0, 2, 0}, &value, sizeof value, &never);
    EXPECT_FALSE(rank.Until([&] { return never.done; }));
    EXPECT_EQ(rank.status.code(), Code::kAborted);
    EXPECT_TRUE(rank.status.message().find("rank 1") != std::string::npos);
    EXPECT_EQ(rank->lost_peer(), GlobalRank(1));
    bool moved = true;
    EXPECT_EQ(rank->Progress(&moved).code(), Code::kAborted);  // dead for good
    EXPECT_FALSE(moved);
    rank->Close(0);
  });
}

inline void LongerThanItsReceive(const MakeTransports& make) {
  OnTransports(make, 2, [](Driver& rank) {
    std::vector<uint8_t> data(100, 5);
    Transfer transfer;
    if (Self(rank) == 0) {
      rank->Send(GlobalRank(1), {0, 1, 0}, data.data(), data.size(), &transfer);
      EXPECT_TRUE(rank.Until([&] { return transfer.done; }));
    } else {
      rank->Recv(GlobalRank(0), {0, 1, 0}, data.data(), 99, &transfer);
      EXPECT_FALSE(rank.Until([&] { return transfer.done; }));
      EXPECT_EQ(rank.status.code(), Code::kAborted);
      EXPECT_EQ(rank->lost_peer(), GlobalRank(0));
    }
  });
}

inline void NothingRemains(const MakeTransports& make) {
  const auto cycle = [&] {
    OnTransports(make, 3, [](Driver& rank) {
      Transfer sent, got;
      int value = 1, other = 0;
      rank->Send(GlobalRank((Self(rank) + 1) % 3), {0, 1, 0}, &value, sizeof value, &sent);
      rank->Recv(GlobalRank((Self(rank) + 2) % 3), {0, 1, 0}, &other, sizeof other, &got);
      EXPECT_TRUE(rank.Until([&] { return sent.done && got.done; }));
    });
  };
  cycle();
  const int descriptors = OpenDescriptors();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

}  // namespace hvd::test

#define TRANSPORT_CONFORMANCE(name, make)                                     \
  TEST(name, RandomSizes) { hvd::test::RandomSizes(make); }                   \
  TEST(name, HeldBack) { hvd::test::HeldBack(make); }                         \
  TEST(name, OtherSetsPass) { hvd::test::OtherSetsPass(make); }               \
  TEST(name, BothWays) { hvd::test::BothWays(make); }                         \
  TEST(name, PingPong) { hvd::test::PingPong(make); }                         \
  TEST(name, ClosedPeer) { hvd::test::ClosedPeer(make); }                     \
  TEST(name, LongerThanItsReceive) { hvd::test::LongerThanItsReceive(make); } \
  TEST(name, NothingRemains) { hvd::test::NothingRemains(make); }
