// Links that come after what is posted over them.

#include <sys/epoll.h>

#include <map>
#include <mutex>
#include <utility>

#include "transport/descriptor.h"
#include "transport/tcp/transport.h"
#include "transport/transport_conformance.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

using tcp::Integrity;
using tcp::TcpTransport;
constexpr uint32_t kGeneration = 9;

// Makes the links that transports ask for, one of a role for each pair, and keeps them until they
// are taken.
class Exchange {
 public:
  explicit Exchange(int size) : made_(size), asked_(size) {}

  void Ask(int rank, int peer, LinkRole role = LinkRole::kData) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++asked_[rank][{peer, role}];
    if (asked_[rank][{peer, role}] + asked_[peer][{rank, role}] > 1) return;
    const auto [near, far] = UnixPair();
    Give(rank, peer, role, near);
    Give(peer, rank, role, far);
  }

  std::vector<Link> TakeLinks(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wakers_[rank].Drain();
    return std::exchange(made_[rank], {});
  }

  int asked(int rank, int peer, LinkRole role = LinkRole::kData) {
    return asked_[rank][{peer, role}];
  }
  int fd(int rank) { return wakers_[rank].fd(); }

 private:
  void Give(int rank, int peer, LinkRole role, int socket) {
    made_[rank].push_back(
        {socket, GlobalRank(peer), role, TestKey(rank, peer), TestKey(peer, rank)});
    wakers_[rank].Ring();
  }

  std::mutex mutex_;  // guards the two lines below
  std::vector<std::vector<Link>> made_;
  std::vector<std::map<std::pair<int, LinkRole>, int>> asked_;  // by rank and link: how often
  std::map<int, Waker> wakers_;
};

TcpTransport::Options OptionsOf(Exchange* exchange, int rank, int size, int strands = 1) {
  TcpTransport::Options options;
  options.generation = kGeneration;
  options.rank = GlobalRank(rank);
  options.size = size;
  options.strands = strands;
  options.ask_for_link = [exchange, rank](GlobalRank peer, LinkRole role) {
    exchange->Ask(rank, peer.value(), role);
  };
  return options;
}

// A rank that adds the links that there are before it makes progress, as the engine does.
class RankOnDemand : public Transport {
 public:
  RankOnDemand(std::shared_ptr<Exchange> exchange, int rank, int size, int strands)
      : exchange_(std::move(exchange)), events_(epoll_create1(EPOLL_CLOEXEC)) {
    const TcpTransport::Options options = OptionsOf(exchange_.get(), rank, size, strands);
    EXPECT_EQ(TcpTransport::Make(options, {}, &own_).message(), "");
    Watch(exchange_->fd(rank));
  }

  GlobalRank rank() const override { return own_->rank(); }
  int size() const override { return own_->size(); }
  void Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
            Transfer* transfer) override {
    own_->Send(peer, tag, data, bytes, transfer);
  }
  void Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
            Transfer* transfer) override {
    own_->Recv(peer, tag, data, capacity, transfer);
  }
  void Forget(uint32_t set) override { own_->Forget(set); }
  Status Progress(bool* moved) override {
    for (const Link& link : exchange_->TakeLinks(rank().value())) {
      HVD_RETURN_IF_ERROR(own_->AddLink(link, Descriptor(link.fd)));
    }
    const Status status = own_->Progress(moved);
    WatchOwn();
    return status;
  }
  GlobalRank lost_peer() const override { return own_->lost_peer(); }
  GlobalRank TakeEnded() override { return own_->TakeEnded(); }
  int poll_fd() const override { return events_.get(); }
  void Close(int64_t linger_us) override { own_->Close(linger_us); }

 private:
  // As long as something that arrives would be of use: else the rank would be woken for nothing.
  void WatchOwn() {
    const int fd = own_->poll_fd();
    if (fd == watched_) return;
    if (fd >= 0) Watch(fd);
    if (fd < 0) EXPECT_EQ(epoll_ctl(events_.get(), EPOLL_CTL_DEL, watched_, nullptr), 0);
    watched_ = fd;
  }

  void Watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event), 0);
  }

  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<TcpTransport> own_;
  Descriptor events_;
  int watched_ = -1;
};

template <int strands>
Transports OnDemand(const std::vector<Waker>& wakers) {
  const int size = static_cast<int>(wakers.size());
  const auto exchange = std::make_shared<Exchange>(size);
  Transports transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<RankOnDemand>(exchange, rank, size, strands));
  }
  return transports;
}

TRANSPORT_CONFORMANCE(TcpTransportOnDemand, OnDemand<1>)
TRANSPORT_CONFORMANCE(TcpTransportOfStrands, OnDemand<3>)

// Two ranks of one thread, without links.
struct Pair {
  explicit Pair(int strands = 1) {
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_OK(TcpTransport::Make(OptionsOf(&exchange, rank, 2, strands), {}, &ranks[rank]));
    }
  }

  void AddLinks() {
    for (int rank = 0; rank < 2; ++rank) {
      for (const Link& link : exchange.TakeLinks(rank)) {
        ASSERT_OK(ranks[rank]->AddLink(link, Descriptor(link.fd)));
      }
    }
  }

  void Settle() {
    for (bool any = true; std::exchange(any, false);) {
      for (auto& rank : ranks) {
        bool moved = false;
        ASSERT_OK(rank->Progress(&moved));
        any |= moved;
      }
    }
  }

  Exchange exchange{2};
  std::unique_ptr<TcpTransport> ranks[2];
};

TEST(OnDemand, ItIsAskedForOnceAndByTheSenderAlone) {
  Pair pair;
  Transfer sent[2], received[2];
  char here[2] = {'a', 'b'}, there[2] = {};
  for (uint64_t i = 0; i < 2; ++i) {
    pair.ranks[1]->Recv(GlobalRank(0), {1, i, 0}, &there[i], 1, &received[i]);
  }
  EXPECT_EQ(pair.exchange.asked(1, 0), 0);
  for (uint64_t i = 0; i < 2; ++i) {
    pair.ranks[0]->Send(GlobalRank(1), {1, i, 0}, &here[i], 1, &sent[i]);
  }
  EXPECT_EQ(pair.exchange.asked(0, 1), 1);
  pair.Settle();
  EXPECT_FALSE(sent[0].done || received[0].done);
  EXPECT_TRUE(pair.ranks[0]->poll_fd() < 0 && pair.ranks[1]->poll_fd() < 0);
  pair.AddLinks();
  pair.Settle();
  EXPECT_TRUE(sent[1].done && received[1].done);
  EXPECT_EQ(std::string(there, 2), "ab");
}

TEST(OnDemand, LargeFramesAreSpreadOverTheStrands) {
  constexpr int kStrands = 4;
  constexpr uint32_t kFrames = 8 + 2 * kStrands;
  constexpr size_t kBytes = 32 << 10;
  Pair pair(kStrands);
  Transfer sent[kFrames], received[kFrames];
  std::string here, there(kFrames * kBytes, ' ');
  for (uint32_t i = 0; i < kFrames; ++i) here.append(kBytes, static_cast<char>('a' + i));
  const auto send = [&](uint64_t sequence, uint32_t chunk, size_t bytes, Transfer* transfer) {
    const FrameTag tag{1, sequence, chunk};
    pair.ranks[0]->Send(GlobalRank(1), tag, &here[chunk * kBytes], bytes, transfer);
  };
  const auto receive = [&](uint64_t sequence, uint32_t chunk, size_t bytes, Transfer* transfer) {
    const FrameTag tag{1, sequence, chunk};
    pair.ranks[1]->Recv(GlobalRank(0), tag, &there[chunk * kBytes], bytes, transfer);
  };
  for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {  // small ones
    send(1, chunk, 1, &sent[chunk]);
    receive(1, chunk, 1, &received[chunk]);
  }
  for (int strand = 0; strand < kStrands; ++strand)
    EXPECT_EQ(pair.exchange.asked(0, 1, DataRole(strand)), strand == 0 ? 1 : 0);
  pair.AddLinks();
  pair.Settle();
  for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {
    EXPECT_TRUE(sent[chunk].done && received[chunk].done);
    sent[chunk] = received[chunk] = {};
    send(2, chunk, kBytes, &sent[chunk]);
    receive(2, chunk, kBytes, &received[chunk]);
  }
  for (int strand = 0; strand < kStrands; ++strand)
    EXPECT_EQ(pair.exchange.asked(0, 1, DataRole(strand)), 1);
  pair.AddLinks();
  pair.Settle();
  EXPECT_EQ(there, here);
  // One that waits for its receive holds up its own strand alone.
  Transfer early, late, next;
  send(3, 8, kBytes, &early);
  send(3, 10, kBytes, &late);
  receive(3, 10, kBytes, &next);
  pair.Settle();
  EXPECT_TRUE(next.done);
}

TEST(OnDemand, WhatIsForgottenBeforeTheLinkIsDiscardedAfterIt) {
  Pair pair;
  Transfer sent[2], received;
  char here[2] = {'a', 'b'}, there = 0;
  pair.ranks[1]->Forget(1);
  pair.ranks[1]->Recv(GlobalRank(0), {2, 0, 0}, &there, 1, &received);
  pair.ranks[1]->Forget(3);
  pair.ranks[0]->Send(GlobalRank(1), {1, 0, 0}, &here[0], 1, &sent[0]);
  pair.ranks[0]->Send(GlobalRank(1), {2, 0, 0}, &here[1], 1, &sent[1]);
  pair.AddLinks();
  pair.Settle();
  EXPECT_TRUE(received.done && there == 'b');
}

TEST(OnDemand, CloseForgetsWhatStillWaitsForALink) {
  const int before = OpenDescriptors();
  {
    Pair pair;
    Transfer sent;
    char here = 'a';
    pair.ranks[0]->Send(GlobalRank(1), {1, 0, 0}, &here, 1, &sent);
    pair.ranks[0]->Close(0);
    pair.AddLinks();  // one of them comes too late
    EXPECT_FALSE(sent.done);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(OnDemand, ASecondLinkIsRefused) {
  Pair pair;
  Transfer sent;
  char here = 'a';
  pair.ranks[0]->Send(GlobalRank(1), {1, 0, 0}, &here, 1, &sent);
  pair.AddLinks();
  const auto [near, far] = UnixPair();
  const Descriptor other(far);
  const Link second{near, GlobalRank(1), LinkRole::kData, TestKey(0, 1), TestKey(1, 0)};
  EXPECT_EQ(pair.ranks[0]->AddLink(second, Descriptor(near)).code(), Code::kInternal);
  Link beyond{-1, GlobalRank(1), DataRole(1), TestKey(0, 1), TestKey(1, 0)};  // there is one strand
  EXPECT_EQ(pair.ranks[0]->AddLink(beyond, Descriptor()).code(), Code::kInternal);
  pair.Settle();
  EXPECT_TRUE(sent.done);
}

}  // namespace
}  // namespace hvd::test
