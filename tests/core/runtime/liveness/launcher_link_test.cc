// The connection of a rank to the launcher, which a network may break.

#include "runtime/liveness/launcher_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "transport/descriptor.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

// How many bytes have come.
size_t Received(int fd) {
  char bytes[4096];
  const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

TEST(LauncherLink, TheSystemProbesTheHostOfTheLauncher) {
  const Descriptor plain(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_TRUE(plain.valid());
  Link link;
  link.fd = dup(plain.get());
  LauncherLink launcher(link);
  launcher.ProbeHost(12.0);
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t bytes = sizeof value;
    getsockopt(plain.get(), level, name, &value, &bytes);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 12000);
  const int pauses = 1 + option(IPPROTO_TCP, TCP_KEEPCNT);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), option(IPPROTO_TCP, TCP_KEEPINTVL));
  EXPECT_EQ(pauses * option(IPPROTO_TCP, TCP_KEEPINTVL), 12);
}

TEST(LauncherLink, AnotherConnectionTakesThePlaceOfALostOneAndCarriesTheVerdict) {
  const auto [fd, other] = TcpPair();
  Link link;
  link.fd = fd;
  int asked = 0;
  LauncherLink launcher(link, 2.0, [&asked] { return ++asked > 0; });
  launcher.ProbeHost(12.0);
  close(other);
  while (launcher.fd() >= 0) launcher.Hear();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(launcher.gone());
  launcher.Report(About(CauseKind::kDied, GlobalRank(1), SharedText("it died")));
  const auto [next, far] = TcpPair();
  link.fd = next;
  launcher.Renew(link);
  launcher.UseRenewed();
  EXPECT_EQ(launcher.fd(), next);
  int probes = 0;
  socklen_t bytes = sizeof probes;
  getsockopt(next, SOL_SOCKET, SO_KEEPALIVE, &probes, &bytes);
  EXPECT_EQ(probes, 1);
  EXPECT_TRUE(Received(far) > 0);
  launcher.Renew({});  // that there is none, when there is one
  launcher.UseRenewed();
  EXPECT_FALSE(launcher.gone());
  launcher.Close();
  link.fd = dup(far);
  launcher.Renew(link);
  EXPECT_EQ(fcntl(link.fd, F_GETFD), -1);  // nobody needs it
  close(far);
}

}  // namespace
}  // namespace hvd::test
