#include "transport/tcp/transport.h"
#include "transport/inproc/fabric.h"
#include "transport/transport_conformance.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

Transports Inproc(const std::vector<Waker>& wakers) {
  // The hub outlives its fabric through the transports.
  inproc::Fabric fabric(static_cast<int>(wakers.size()));
  Transports transports;
  for (const Waker& waker : wakers) {
    transports.push_back(
        fabric.MakeTransport(4, GlobalRank(static_cast<int>(transports.size())), waker));
  }
  return transports;
}

MakeTransports Tcp(SocketPair (*connect)(), tcp::Integrity integrity, bool encrypted = false) {
  return [connect, integrity, encrypted](const std::vector<Waker>& wakers) {
    const int size = static_cast<int>(wakers.size());
    const auto links = Mesh(size, connect);
    Transports transports(size);
    for (int rank = 0; rank < size; ++rank) {
      std::unique_ptr<tcp::TcpTransport> transport;
      tcp::TcpTransport::Options options{9, GlobalRank(rank), size, integrity};
      options.encrypted = encrypted;
      const Status made = tcp::TcpTransport::Make(options, links[rank], &transport);
      EXPECT_EQ(made.message(), "");
      transports[rank] = std::move(transport);
    }
    return transports;
  };
}

const auto kOverUnix = Tcp(UnixPair, tcp::Integrity::kChecksum);
const auto kOverTcp = Tcp(TcpPair, tcp::Integrity::kChecksum);
const auto kSealed = Tcp(TcpPair, tcp::Integrity::kSealed);
const auto kEncrypted = Tcp(TcpPair, tcp::Integrity::kChecksum, /*encrypted=*/true);

TRANSPORT_CONFORMANCE(InprocTransport, Inproc)
TRANSPORT_CONFORMANCE(TcpTransportUnix, kOverUnix)
TRANSPORT_CONFORMANCE(TcpTransport, kOverTcp)
TRANSPORT_CONFORMANCE(TcpTransportSealed, kSealed)
TRANSPORT_CONFORMANCE(TcpTransportEncrypted, kEncrypted)

}  // namespace
}  // namespace hvd::test
