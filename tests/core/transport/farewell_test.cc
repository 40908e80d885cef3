#include "transport/descriptor.h"

#include <fcntl.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "transport/transport_ranks.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int64_t kSecond = 1000000;
constexpr size_t kMost = 64 << 20;

// Sends as much as the kernel takes.
size_t Fill(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const std::vector<char> bytes(1 << 20, 'x');
  size_t sent = 0;
  for (ssize_t got = 0; got >= 0 && sent < kMost; sent += got >= 0 ? static_cast<size_t>(got) : 0) {
    got = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return sent;
}

size_t ReadAll(int socket) {
  std::vector<char> bytes(1 << 16);
  size_t total = 0;
  for (;;) {
    const ssize_t got = read(socket, bytes.data(), bytes.size());
    if (got <= 0) return total;
    total += static_cast<size_t>(got);
    if (total % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::vector<Descriptor> Only(Descriptor socket) {
  std::vector<Descriptor> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

// Unread bytes make a plain close a reset, which takes along what has not arrived.
TEST(Farewell, EverythingArrivesThoughThePeersBytesAreUnread) {
  for (const auto connect : {UnixPair, TcpPair}) {
    const auto [near, far] = connect();
    Descriptor leaver(near);
    const Descriptor peer(far);
    EXPECT_EQ(write(peer.get(), "unread", 6), 6);
    const size_t sent = Fill(leaver.get());
    EXPECT_TRUE(sent > 0);
    size_t got = 0;
    std::thread reader([&, far = far] { got = ReadAll(far); });
    CloseDelivered(Only(std::move(leaver)), 20 * kSecond);
    reader.join();
    EXPECT_EQ(got, sent);
  }
}

TEST(Farewell, WhoDoesNotReadHoldsUpNobodyForLong) {
  const int before = OpenDescriptors();
  {
    const auto [near, far] = TcpPair();
    Descriptor leaver(near);
    const Descriptor peer(far);
    (void)Fill(leaver.get());
    const int64_t start = NowMicros();
    CloseDelivered(Only(std::move(leaver)), kSecond / 5);
    EXPECT_TRUE(NowMicros() - start >= kSecond / 5);
    EXPECT_TRUE(NowMicros() - start < 5 * kSecond);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

// Neither a peer that is gone nor one that sends on and on is waited for.
TEST(Farewell, NothingIsWaitedForWithoutNeed) {
  for (const bool gone : {false, true}) {
    const auto [near, far] = TcpPair();
    Descriptor leaver(near);
    Descriptor peer(far);
    EXPECT_EQ(write(leaver.get(), "news", 4), 4);
    if (gone) peer.Reset();
    if (!gone) (void)Fill(peer.get());
    const int64_t start = NowMicros();
    CloseDelivered(Only(std::move(leaver)), 20 * kSecond);
    EXPECT_TRUE(NowMicros() - start < 5 * kSecond);
  }
}

}  // namespace
}  // namespace hvd::test
