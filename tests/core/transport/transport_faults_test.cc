// What a TcpTransport does when the bytes that arrive are not those that a healthy peer sends.

#include <fcntl.h>

#include <cstring>
#include <random>

#include "transport/descriptor.h"
#include "transport/tcp/transport.h"
#include "transport/transport_ranks.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

using tcp::Integrity;
constexpr uint32_t kGeneration = 9;
constexpr size_t kBytes = 20;

// Rank 0 is a transport of ours; rank 1 is a bare socket and what a test writes to it.
struct Duel {
  explicit Duel(Integrity integrity, SocketPair (*connect)() = UnixPair,
                bool peers_may_leave = false)
      : guard(integrity, TestKey(1, 0)), integrity(integrity) {
    const auto [ours, theirs] = connect();
    peer = Descriptor(theirs);
    const Link link{ours, GlobalRank(1), LinkRole::kData, TestKey(0, 1), TestKey(1, 0)};
    ASSERT_OK(tcp::TcpTransport::Make({kGeneration, GlobalRank(0), 2, integrity, peers_may_leave},
                                      {link}, &transport));
    transport->Recv(GlobalRank(1), {1, 2, 3}, received, kBytes, &transfer);
  }

  void Write(const std::vector<std::byte>& bytes) {
    EXPECT_EQ(send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // Moves until nothing moves.
  Status Settle() {
    bool moved = true;
    Status status;
    while (moved && status.ok()) status = transport->Progress(&moved);
    return status;
  }

  void ExpectLost() {
    const Status status = Settle();
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(status.message().find("rank 1") != std::string::npos);
    EXPECT_EQ(transport->lost_peer(), GlobalRank(1));
    EXPECT_FALSE(transfer.done);
    EXPECT_FALSE(Readable(transport->poll_fd(), 0));
  }

  void ExpectCorrupt() {
    ExpectLost();
    EXPECT_TRUE(transport->lost_to_corruption());
  }
  void ExpectCut() {
    ExpectLost();
    EXPECT_FALSE(transport->lost_to_corruption());
  }

  std::vector<std::byte> Frame(tcp::FrameHeader header) {
    const tcp::Prefix prefix = tcp::Encode(header, &guard);
    std::vector<std::byte> frame(prefix.begin(), prefix.end());
    std::vector<std::byte> payload(kBytes, std::byte{0x5A});
    frame.insert(frame.end(), payload.begin(), payload.end());
    guard.Add(payload.data(), payload.size());
    const tcp::Trailer trailer = guard.Finish();
    frame.insert(frame.end(), trailer.begin(), trailer.end());
    return frame;
  }
  std::vector<std::byte> GoodFrame() { return Frame({kGeneration, {1, 2, 3}, kBytes}); }

  tcp::Guard guard;  // of what the peer sends
  const Integrity integrity;
  Descriptor peer;
  std::unique_ptr<tcp::TcpTransport> transport;
  std::byte received[kBytes] = {};
  Transfer transfer;
};

constexpr Integrity kBoth[] = {Integrity::kChecksum, Integrity::kSealed};

TEST(TcpFaults, FrameByteByByte) {
  for (const Integrity integrity : kBoth) {
    Duel duel(integrity);
    for (const std::byte byte : duel.GoodFrame()) {
      EXPECT_FALSE(duel.transfer.done);
      duel.Write({byte});
      ASSERT_OK(duel.Settle());
    }
    EXPECT_TRUE(duel.transfer.done);
    EXPECT_EQ(duel.transfer.bytes, kBytes);
    EXPECT_TRUE(duel.received[kBytes - 1] == std::byte{0x5A});
  }
}

TEST(TcpFaults, EveryFlippedBitIsFound) {
  for (const Integrity integrity : kBoth) {
    const size_t size = Duel(integrity).GoodFrame().size();
    for (size_t bit = 0; bit < size * 8; ++bit) {
      Duel duel(integrity);
      auto frame = duel.GoodFrame();
      frame[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
      duel.Write(frame);
      duel.ExpectCorrupt();
    }
  }
}

TEST(TcpFaults, EveryCutIsFound) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    const size_t size = Duel(Integrity::kChecksum).GoodFrame().size();
    for (size_t cut = 0; cut < size; ++cut) {
      Duel duel(Integrity::kChecksum, connect);
      auto frame = duel.GoodFrame();
      frame.resize(cut);
      duel.Write(frame);
      ASSERT_OK(duel.Settle());
      if (cut % 2 == 0) shutdown(duel.peer.get(), SHUT_WR);  // half closed
      if (cut % 2 == 1) duel.peer.Reset();
      EXPECT_TRUE(Readable(duel.transport->poll_fd()));
      duel.ExpectCut();
    }
  }
}

TEST(TcpFaults, ForeignFramesAreRefused) {
  const tcp::FrameHeader strange[] = {
      {kGeneration - 1, {1, 2, 3}, kBytes},    {kGeneration + 1, {1, 2, 3}, kBytes},
      {kGeneration, {1, 2, 3}, kBytes + 1},     // longer than its receive
      {kGeneration, {9, 9, 9}, kMaxFrame + 1},  // longer than any frame, though nobody waits for it
      {kGeneration, {1, 2, 3}, 0xFFFFFFFF},
  };
  for (const Integrity integrity : kBoth) {
    for (const auto& header : strange) {
      Duel duel(integrity);
      duel.Write(duel.Frame(header));
      duel.ExpectCorrupt();
    }
  }
}

TEST(TcpFaults, RepeatedOrMissingSealedFramesAreRefused) {
  Duel repeated(Integrity::kSealed);
  const auto frame = repeated.GoodFrame();
  repeated.Write(frame);
  ASSERT_OK(repeated.Settle());
  EXPECT_TRUE(repeated.transfer.done);
  repeated.transfer = {};
  repeated.transport->Recv(GlobalRank(1), {1, 2, 3}, repeated.received, kBytes, &repeated.transfer);
  repeated.Write(frame);
  repeated.ExpectCorrupt();

  Duel missing(Integrity::kSealed);
  missing.GoodFrame();
  missing.Write(missing.GoodFrame());
  missing.ExpectCorrupt();

  Duel stranger(Integrity::kSealed);
  stranger.guard = tcp::Guard(Integrity::kSealed, TestKey(2, 0));
  stranger.Write(stranger.GoodFrame());
  stranger.ExpectCorrupt();
}

// Any bytes: a clean error or more bytes awaited, never a transfer that counts as done.
TEST(TcpFaults, RandomBytes) {
  std::mt19937 random(4711);
  for (int round = 0; round < 2000; ++round) {
    Duel duel(kBoth[round % 2]);
    auto bytes =
        duel.GoodFrame();  // a random part of it stays, so that later states are reached too
    const size_t kept = random() % (bytes.size() - 8);
    bytes.resize(kept + 1 + random() % 400);
    for (size_t i = kept; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
    duel.Write(bytes);
    duel.peer.Reset();
    duel.ExpectLost();
  }
}

// A peer that closes wakes and concerns nobody until something is expected from it or sent to it.
TEST(TcpFaults, ClosedWhileIdle) {
  for (SocketPair (*connect)() : {UnixPair, TcpPair}) {
    for (const bool sends : {false, true}) {
      Duel duel(Integrity::kChecksum, connect);
      duel.Write(duel.GoodFrame());
      ASSERT_OK(duel.Settle());
      EXPECT_TRUE(duel.transfer.done);
      duel.peer.Reset();
      ASSERT_OK(duel.Settle());
      EXPECT_FALSE(Readable(duel.transport->poll_fd(), 10));
      duel.transfer = {};
      const std::vector<std::byte> large(kMaxFrame);
      if (sends)
        duel.transport->Send(GlobalRank(1), {}, large.data(), large.size(), &duel.transfer);
      if (!sends) duel.transport->Recv(GlobalRank(1), {}, duel.received, kBytes, &duel.transfer);
      Status status = duel.Settle();
      while (status.ok() && Readable(duel.transport->poll_fd(), 1000)) status = duel.Settle();
      duel.ExpectCut();
    }
  }
}

// Sending fails first, because the peer has closed its socket with bytes unread: what it sent
// before counts.
TEST(TcpFaults, TheLastWordsOfAPeerThatMayLeaveAreHeard) {
  for (const auto connect : {UnixPair, TcpPair}) {
    Duel duel(Integrity::kChecksum, connect, true);
    Transfer sent[2];
    std::byte byte{};
    duel.transport->Send(GlobalRank(1), {1, 7, 0}, &byte, 1, &sent[0]);
    bool moved;
    ASSERT_OK(duel.transport->Progress(&moved));
    EXPECT_TRUE(sent[0].done);
    EXPECT_TRUE(Readable(duel.peer.get()));
    duel.Write(duel.GoodFrame());
    duel.peer.Reset();
    duel.transport->Send(GlobalRank(1), {1, 8, 0}, &byte, 1, &sent[1]);
    ASSERT_OK(duel.Settle());
    EXPECT_TRUE(duel.transfer.done && sent[1].done);
    Transfer more;
    duel.transport->Recv(GlobalRank(1), {1, 2, 4}, &byte, 1, &more);
    ASSERT_OK(duel.Settle());
    EXPECT_EQ(duel.transport->TakeEnded(), GlobalRank(1));
    EXPECT_EQ(duel.transport->TakeEnded(), GlobalRank());
  }
}

TEST(TcpFaults, LinksThatMakeNoSense) {
  const int before = OpenDescriptors();
  for (const std::vector<int>& peers : std::vector<std::vector<int>>{{0}, {2}, {-1}, {1, 1}}) {
    std::vector<Link> links;
    std::vector<Descriptor> others;
    for (const int peer : peers) {
      const auto [ours, theirs] = UnixPair();
      others.emplace_back(theirs);
      links.push_back({ours, GlobalRank(peer), LinkRole::kData, {}, {}});
    }
    std::unique_ptr<tcp::TcpTransport> transport;
    EXPECT_EQ(tcp::TcpTransport::Make({kGeneration, GlobalRank(0), 2, Integrity::kChecksum}, links,
                                      &transport)
                  .code(),
              Code::kInternal);
    EXPECT_TRUE(transport == nullptr);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(TcpFaults, WrongUseIsAnError) {
  Transfer transfer;
  std::byte byte{};
  bool moved;
  Duel nobody(Integrity::kChecksum);
  nobody.transport->Send(GlobalRank(0), {}, &byte, 1, &transfer);
  EXPECT_EQ(nobody.transport->Progress(&moved).code(), Code::kInternal);
  Duel too_long(Integrity::kChecksum);
  too_long.transport->Send(GlobalRank(1), {}, &byte, kMaxFrame + 1, &transfer);
  EXPECT_EQ(too_long.transport->Progress(&moved).code(), Code::kInternal);
  Duel closed(Integrity::kChecksum);
  closed.transport->Close(0);
  closed.transport->Recv(GlobalRank(1), {}, &byte, 1, &transfer);
  EXPECT_EQ(closed.transport->Progress(&moved).code(), Code::kShutdown);
}

}  // namespace
}  // namespace hvd::test
