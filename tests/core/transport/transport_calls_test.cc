// How many system calls a TcpTransport makes: what is idle costs nothing, however many links there
// are.

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstring>
#include <deque>

#include "transport/descriptor.h"
#include "transport/tcp/transport.h"
#include "transport/transport_ranks.h"
#include "transport/transport_sockets.h"

namespace {

// Calls of this thread on sockets and on what waits for them, so far.
thread_local int calls = 0;

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// These take the place of the C library's, and pass on to them.
extern "C" {
ssize_t readv(int fd, const iovec* parts, int count) {
  static auto* const next = Next<decltype(readv)>("readv");
  return ++calls, next(fd, parts, count);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const next = Next<decltype(sendmsg)>("sendmsg");
  return ++calls, next(fd, message, flags);
}
int epoll_wait(int fd, epoll_event* events, int most, int timeout_ms) {
  static auto* const next = Next<decltype(epoll_wait)>("epoll_wait");
  return ++calls, next(fd, events, most, timeout_ms);
}
int epoll_ctl(int fd, int change, int target, epoll_event* event) noexcept {
  static auto* const next = Next<decltype(epoll_ctl)>("epoll_ctl");
  return ++calls, next(fd, change, target, event);
}
}

namespace hvd::test {
namespace {

constexpr int kPeers = 100;
constexpr size_t kBytes = 64;
constexpr int kMessages = 50;

// Until nothing moves.
Status Settle(Transport& transport) {
  Status status;
  for (bool moved = true; moved && status.ok();) status = transport.Progress(&moved);
  return status;
}

// The calls that so many rounds of progress make.
int Calls(Transport& transport, int rounds) {
  const int before = calls;
  bool moved;
  for (int i = 0; i < rounds; ++i) EXPECT_EQ(transport.Progress(&moved).message(), "");
  return calls - before;
}

// Rank 0 with a link to each of many peers, which are bare transports of their own, and a receive
// posted to each of them.
class Star {
 public:
  explicit Star(SocketPair (*connect)() = UnixPair, int peers = kPeers)
      : far_(peers + 1), received_(peers + 1) {
    std::vector<Link> near;
    for (int peer = 1; peer <= peers; ++peer) {
      const auto [ours, theirs] = connect();
      near.push_back({ours, GlobalRank(peer), LinkRole::kData, TestKey(0, peer), TestKey(peer, 0)});
      const Link link{theirs, GlobalRank(0), LinkRole::kData, TestKey(peer, 0), TestKey(0, peer)};
      ASSERT_OK(tcp::TcpTransport::Make({1, GlobalRank(peer), peers + 1, tcp::Integrity::kChecksum},
                                        {link}, &far_[peer]));
    }
    ASSERT_OK(tcp::TcpTransport::Make({1, GlobalRank(0), peers + 1, tcp::Integrity::kChecksum},
                                      near, &transport));
    for (int peer = 1; peer <= peers; ++peer) Post(peer, 0);
  }

  void Post(int peer, uint32_t number) {
    received_[peer] = {};
    transport->Recv(GlobalRank(peer), {1, number, 0}, buffer_, kBytes, &received_[peer]);
  }
  void Tell(int peer, uint32_t number) {
    Transfer sent;
    far_[peer]->Send(GlobalRank(0), {1, number, 0}, payload_, kBytes, &sent);
    ASSERT_OK(Settle(*far_[peer]));
    EXPECT_TRUE(sent.done);
  }
  bool received(int peer) const { return received_[peer].done; }

  void Leave(int peer) { far_[peer].reset(); }
  int Progress(int rounds) { return Calls(*transport, rounds); }

  std::unique_ptr<tcp::TcpTransport> transport;

 private:
  std::vector<std::unique_ptr<tcp::TcpTransport>> far_;
  std::vector<Transfer> received_;
  const std::byte payload_[kBytes] = {};
  std::byte buffer_[kBytes];
};

TEST(TransportCalls, ALookAtIdleLinksIsOneCall) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    Star star(connect);
    star.Progress(2);
    EXPECT_TRUE(star.Progress(10) <= 10);
  }
}

TEST(TransportCalls, AMessageCostsTheSameHoweverManyLinksAreIdle) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    Star star(connect);
    star.Progress(2);
    int receiving = 0, posting = 0;
    for (int i = 0; i < kMessages; ++i) {
      const int peer = 1 + i * 7 % kPeers;
      const uint32_t number = i / kPeers;
      star.Tell(peer, number);
      EXPECT_TRUE(Readable(star.transport->poll_fd()));
      receiving += star.Progress(1);
      EXPECT_TRUE(star.received(peer));
      star.Post(peer, number + 1);
      posting += star.Progress(1);
      EXPECT_FALSE(Readable(star.transport->poll_fd(), 0));
    }
    EXPECT_TRUE(receiving <= 3 * kMessages);
    EXPECT_TRUE(posting <= 2 * kMessages);
  }
}

// Nothing is expected of anybody, so there is nothing to look at.
TEST(TransportCalls, NothingExpectedCostsNothing) {
  Star star(UnixPair, 3);
  for (int peer = 1; peer <= 3; ++peer) star.Tell(peer, 0);
  star.Progress(4);
  for (int peer = 1; peer <= 3; ++peer) EXPECT_TRUE(star.received(peer));
  EXPECT_EQ(star.Progress(10), 0);
  EXPECT_FALSE(Readable(star.transport->poll_fd(), 0));
}

// What a peer does not take is offered again when there is room, not before.
TEST(TransportCalls, ABlockedSendIsNotTriedInVain) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    const auto [ours, theirs] = connect();
    const Descriptor peer(theirs);
    std::vector<std::byte> sink(1 << 20);
    const auto drain = [&] {
      while (recv(peer.get(), sink.data(), sink.size(), MSG_DONTWAIT) > 0) continue;
    };
    std::unique_ptr<tcp::TcpTransport> transport;
    const Link link{ours, GlobalRank(1), LinkRole::kData, TestKey(0, 1), TestKey(1, 0)};
    ASSERT_OK(tcp::TcpTransport::Make({1, GlobalRank(0), 2, tcp::Integrity::kChecksum}, {link},
                                      &transport));
    const std::vector<std::byte> large(kMaxFrame);
    Transfer sent, never;
    std::byte byte;
    transport->Recv(GlobalRank(1), {1, 2, 0}, &byte, 1, &never);
    transport->Send(GlobalRank(1), {1, 1, 0}, large.data(), large.size(), &sent);
    ASSERT_OK(Settle(*transport));
    EXPECT_FALSE(Readable(transport->poll_fd(), 20));
    EXPECT_TRUE(Calls(*transport, 10) <= 10);
    while (!sent.done) {
      drain();
      ASSERT_TRUE(Readable(transport->poll_fd()));
      ASSERT_OK(Settle(*transport));
    }
    // From then on room for more is of no interest.
    drain();
    ASSERT_OK(Settle(*transport));
    Transfer small;
    transport->Send(GlobalRank(1), {1, 2, 0}, &byte, 1, &small);
    ASSERT_OK(Settle(*transport));
    drain();
    EXPECT_FALSE(Readable(transport->poll_fd(), 20));
  }
}

// Frames that are posted together leave together, whatever their sizes; what the socket does not
// take of them follows.
TEST(TransportCalls, FramesPostedTogetherLeaveInFewCalls) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    const auto [ours, theirs] = connect();
    std::unique_ptr<tcp::TcpTransport> from, to;
    ASSERT_OK(tcp::TcpTransport::Make(
        {1, GlobalRank(0), 2, tcp::Integrity::kChecksum},
        {{ours, GlobalRank(1), LinkRole::kData, TestKey(0, 1), TestKey(1, 0)}}, &from));
    ASSERT_OK(tcp::TcpTransport::Make(
        {1, GlobalRank(1), 2, tcp::Integrity::kChecksum},
        {{theirs, GlobalRank(0), LinkRole::kData, TestKey(1, 0), TestKey(0, 1)}}, &to));
    const auto exchange = [&](const std::vector<size_t>& sizes, uint64_t sequence) {
      std::deque<std::vector<std::byte>> sent, received;
      std::deque<Transfer> sends, receives;
      for (uint32_t i = 0; i < sizes.size(); ++i) {
        sent.emplace_back(sizes[i], static_cast<std::byte>(i + 1));
        received.emplace_back(sizes[i]);
        from->Send(GlobalRank(1), {1, sequence, i}, sent[i].data(), sizes[i],
                   &sends.emplace_back());
        to->Recv(GlobalRank(0), {1, sequence, i}, received[i].data(), sizes[i],
                 &receives.emplace_back());
      }
      const int made = Calls(*from, 1);
      while (!receives.back().done) {
        Calls(*to, 1);
        Calls(*from, 1);
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(sends[i].done);
        EXPECT_TRUE(received[i] == sent[i]);
      }
      return made;
    };
    EXPECT_EQ(exchange({10, 0, 1000, 1, 0, 300, 64, 2000}, 0), 1);
    // More parts than one call has, more bytes, and frames that end where a call does.
    EXPECT_TRUE(exchange(std::vector<size_t>(100, 8), 1) <= 7);
    exchange(std::vector<size_t>(12, 128 << 10), 2);
    exchange({(1 << 20) + 1, 0, 512 << 10, 1, (512 << 10) - 48, 3 << 20, 5}, 3);
  }
}

// An event that was told while a link had no receive is not told again.
TEST(TransportCalls, WhatCameBeforeItsReceiveIsNotLost) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    Star star(connect, 3);
    star.Tell(1, 0);
    star.Progress(1);
    EXPECT_TRUE(star.received(1));
    star.Tell(1, 1);
    EXPECT_TRUE(Readable(star.transport->poll_fd()));
    star.Progress(2);
    EXPECT_FALSE(Readable(star.transport->poll_fd(), 0));
    star.Post(1, 1);
    star.Progress(1);
    EXPECT_TRUE(star.received(1));
  }
}

// Two frames arrive at once: the second lies in memory of the transport when its receive is posted.
TEST(TransportCalls, WhatWasReadAheadIsNotLost) {
  Star star(UnixPair, 2);
  star.Tell(1, 0);
  star.Tell(1, 1);
  star.Progress(1);
  EXPECT_TRUE(star.received(1));
  star.Progress(1);
  EXPECT_FALSE(Readable(star.transport->poll_fd(), 0));
  star.Post(1, 1);
  star.Progress(1);
  EXPECT_TRUE(star.received(1));
}

// The end of a link of which nothing is expected wakes nobody for good, and is an error when
// something is.
TEST(TransportCalls, AnEndIsTakenOnceAndRemembered) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    Star star(connect, 2);
    star.Tell(1, 0);
    star.Progress(1);
    star.Leave(1);
    EXPECT_TRUE(Readable(star.transport->poll_fd()));
    star.Progress(2);
    EXPECT_FALSE(Readable(star.transport->poll_fd(), 20));
    star.Tell(2, 0);
    EXPECT_TRUE(Readable(star.transport->poll_fd()));
    star.Progress(1);
    EXPECT_TRUE(star.received(2));
    star.Post(1, 1);
    EXPECT_EQ(Settle(*star.transport).code(), Code::kAborted);
    EXPECT_EQ(star.transport->lost_peer(), GlobalRank(1));
  }
}

}  // namespace
}  // namespace hvd::test
