#include "transport/tcp/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "transport/farewell.h"

namespace hvd::tcp {

namespace {

// What one call of Progress moves each way for each peer, so that no peer starves another.
constexpr size_t kBudget = 1 << 20;
constexpr int kUnixBuffer = 4 << 20;

// Best effort: a socket works without any of these. The buffers of a TCP socket are left to the kernel, which
// grows them further than an unprivileged program may ask for.
void Tune(int socket) {
  const int on = 1;
  const bool tcp = setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
  if (!tcp) setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
}

Status SetNonBlocking(int socket) {
  const int flags = fcntl(socket, F_GETFL);
  if (flags >= 0 && fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0) return Status::Ok();
  return Status::Errno("cannot use the socket of a link");
}

}  // namespace

TcpTransport::Connection::Connection(const Options& options, const Link& link, Descriptor fd)
    : socket(std::move(fd)),
      writer(options.generation, Guard(options.integrity, link.send_key)),
      reader(options.generation, Guard(options.integrity, link.recv_key)) {}

uint32_t TcpTransport::Connection::Wanted() const {
  if (ended) return 0;
  return (reader.wants() ? uint32_t{EPOLLIN} : 0) | (writer.blocked() ? uint32_t{EPOLLOUT} : 0);
}

Status TcpTransport::Make(const Options& options, const std::vector<Link>& links,
                          std::unique_ptr<Transport>* out) {
  std::vector<Descriptor> sockets;
  for (const Link& link : links) sockets.emplace_back(link.fd);
  std::unique_ptr<TcpTransport> transport(new TcpTransport(options));
  transport->epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!transport->epoll_.valid()) return Status::Errno("epoll_create1");
  for (size_t i = 0; i < links.size(); ++i) {
    HVD_RETURN_IF_ERROR(transport->Connect(links[i], std::move(sockets[i])));
  }
  *out = std::move(transport);
  return Status::Ok();
}

Status TcpTransport::Connect(const Link& link, Descriptor socket) {
  const bool known = link.peer >= 0 && link.peer < size() && link.peer != rank();
  if (!known || connections_[link.peer] != nullptr) {
    return Status::Internal("a second or impossible link to rank " + std::to_string(link.peer));
  }
  HVD_RETURN_IF_ERROR(SetNonBlocking(socket.get()));
  Tune(socket.get());
  connections_[link.peer] = std::make_unique<Connection>(options_, link, std::move(socket));
  return Status::Ok();
}

// The connection to `peer` while the transport is healthy.
TcpTransport::Connection* TcpTransport::Find(int peer) {
  if (!failure_.ok()) return nullptr;
  if (peer < 0 || peer >= size() || connections_[peer] == nullptr) {
    failure_ =
        Status::Internal("rank " + std::to_string(rank()) + " has no link to rank " + std::to_string(peer));
    return nullptr;
  }
  return connections_[peer].get();
}

void TcpTransport::Send(int peer, const FrameTag& tag, const void* data, size_t bytes, Transfer* transfer) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  if (bytes > kMaxFrame) {
    failure_ = Status::Internal("a frame of " + std::to_string(bytes) + " bytes exceeds the limit");
    return;
  }
  connection->writer.Post({tag, static_cast<const std::byte*>(data), bytes, transfer});
}

void TcpTransport::Recv(int peer, const FrameTag& tag, void* data, size_t capacity, Transfer* transfer) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  const Status status = connection->reader.Post({tag, static_cast<std::byte*>(data), capacity, transfer});
  if (!status.ok()) Fail(peer, {Code::kAborted, status.message()});
}

void TcpTransport::Forget(uint32_t set) {
  for (const auto& connection : connections_) {
    if (connection != nullptr) connection->reader.Forget(set);
  }
}

Status TcpTransport::Progress(bool* moved) {
  *moved = false;
  for (int peer = 0; peer < size() && failure_.ok(); ++peer) {
    if (connections_[peer] == nullptr || connections_[peer]->ended) continue;
    const Status status = Move(peer, moved);
    if (status.code() == Code::kShutdown && options_.peers_may_leave) {
      End(peer);
    } else if (!status.ok()) {
      Fail(peer, {Code::kAborted, status.message()});
    }
  }
  // While something moves nobody sleeps, so epoll is told only when it may be waited for.
  if (*moved || !failure_.ok()) return failure_;
  for (const auto& connection : connections_) {
    if (connection != nullptr) Await(connection.get(), connection->Wanted());
  }
  return Status::Ok();
}

Status TcpTransport::Move(int peer, bool* moved) {
  Connection& connection = *connections_[peer];
  const int socket = connection.socket.get();
  if (!connection.writer.idle()) {
    const Status sent = connection.writer.Progress(socket, kBudget, moved);
    const bool has_left = sent.code() == Code::kShutdown && options_.peers_may_leave;
    // Its last words may still lie unread.
    if (has_left) connection.writer.Discard();
    if (!has_left) HVD_RETURN_IF_ERROR(sent);
  }
  return connection.reader.Progress(socket, kBudget, moved);
}

// A socket that nothing is awaited of leaves the epoll set: it would report a hang-up even so, for ever.
void TcpTransport::Await(Connection* connection, uint32_t events) {
  if (connection->awaited == events) return;
  const int change = events == 0 ? EPOLL_CTL_DEL : connection->awaited == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(epoll_.get(), change, connection->socket.get(), &event) != 0) {
    failure_ = Status::Errno("epoll_ctl");
  }
  connection->awaited = events;
}

void TcpTransport::End(int peer) {
  connections_[peer]->ended = true;
  connections_[peer]->writer.Discard();
  ended_.push_back(peer);
}

int TcpTransport::TakeEnded() {
  if (ended_.empty()) return -1;
  const int peer = ended_.back();
  ended_.pop_back();
  return peer;
}

void TcpTransport::Fail(int peer, const Status& status) {
  lost_peer_ = peer;
  failure_ = {status.code(), "rank " + std::to_string(rank()) + " lost its link to rank " +
                                 std::to_string(peer) + ": " + status.message()};
  for (const auto& connection : connections_) {
    if (connection != nullptr) Await(connection.get(), 0);
  }
}

void TcpTransport::Close(int64_t linger_us) {
  if (failure_.ok()) failure_ = Status(Code::kShutdown, "the transport is closed");
  std::vector<Descriptor> sockets;
  for (auto& connection : connections_) {
    if (connection != nullptr) sockets.push_back(std::move(connection->socket));
    connection.reset();
  }
  epoll_.Reset();
  if (linger_us > 0) CloseDelivered(std::move(sockets), linger_us);
}

}  // namespace hvd::tcp
