#pragma once

// Connected pairs of stream sockets, and full meshes of them.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/link.h"
#include "check.h"

namespace hvd::test {

using SocketPair = std::pair<int, int>;

inline SocketPair UnixPair() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {pair[0], pair[1]};
}

inline SocketPair TcpPair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(listener, generic, length), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, generic, &length), 0);
  const int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(a, generic, length), 0);
  const int b = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  EXPECT_TRUE(b >= 0);
  close(listener);
  return {a, b};
}

inline Key TestKey(int from, int to) {
  Key key{};
  key[0] = static_cast<uint8_t>(from);
  key[31] = static_cast<uint8_t>(to);
  return key;
}

// links[rank] lead to all other ranks.
inline std::vector<std::vector<Link>> Mesh(int size, const std::function<SocketPair()>& connect) {
  std::vector<std::vector<Link>> links(size);
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < a; ++b) {
      const auto [of_a, of_b] = connect();
      links[a].push_back({of_a, GlobalRank(b), LinkRole::kData, TestKey(a, b), TestKey(b, a)});
      links[b].push_back({of_b, GlobalRank(a), LinkRole::kData, TestKey(b, a), TestKey(a, b)});
    }
  }
  return links;
}

}  // namespace hvd::test
