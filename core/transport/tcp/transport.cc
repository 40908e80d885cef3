#include "transport/tcp/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "transport/descriptor.h"

namespace hvd::tcp {

namespace {

// What one call of Progress moves each way for each peer, so that no peer starves another.
constexpr size_t kBudget = 1 << 20;
constexpr int kUnixBuffer = 4 << 20;

// Best effort: a socket works without any of these. The buffers of a TCP socket are left to the
// kernel, which grows them further than an unprivileged program may ask for.
void Tune(int socket, bool local) {
  const int on = 1;
  if (!local) setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (local) setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
}

bool IsUnixSocket(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

Status SetNonBlocking(int socket) {
  const int flags = fcntl(socket, F_GETFL);
  if (flags >= 0 && fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0) return Status::Ok();
  return Status::Errno("cannot use the socket of a link");
}

}  // namespace

Status TcpTransport::Make(const Options& options, const std::vector<Link>& links,
                          std::unique_ptr<TcpTransport>* out) {
  std::vector<Descriptor> sockets = Adopt(links);
  std::unique_ptr<TcpTransport> transport(new TcpTransport(options));
  HVD_RETURN_IF_ERROR(transport->poller_.Open());
  for (size_t i = 0; i < links.size(); ++i) {
    HVD_RETURN_IF_ERROR(transport->AddLink(links[i], std::move(sockets[i])));
  }
  *out = std::move(transport);
  return Status::Ok();
}

Status TcpTransport::AddLink(const Link& link, Descriptor socket) {
  if (!failure_.ok()) return Status::Ok();  // nobody needs it any more
  const bool known = link.peer.known() && link.peer.value() < size() && link.peer != rank();
  if (!known || Meet(link.peer).socket.valid()) {
    return Status::Internal("a second or impossible link to " + Name(link.peer));
  }
  Connection& connection = Meet(link.peer);
  leaving_.reserve(++sockets_);
  HVD_RETURN_IF_ERROR(SetNonBlocking(socket.get()));
  const bool local = IsUnixSocket(socket.get());
  Tune(socket.get(), local);
  std::unique_ptr<RecordWriter> writes;
  std::unique_ptr<RecordReader> reads;
  if (options_.encrypted && !local) {
    std::unique_ptr<Gcm> seals, opens;
    HVD_RETURN_IF_ERROR(Gcm::Make(Gcm::Way::kSeal, link.send_key, &seals));
    HVD_RETURN_IF_ERROR(Gcm::Make(Gcm::Way::kOpen, link.recv_key, &opens));
    writes = std::make_unique<RecordWriter>(std::move(seals));
    reads = std::make_unique<RecordReader>(std::move(opens));
  }
  connection.writer.Open(Guard(options_.integrity, link.send_key), std::move(writes));
  connection.reader.Open(Guard(options_.integrity, link.recv_key), std::move(reads));
  HVD_RETURN_IF_ERROR(poller_.Add(socket.get(), link.peer));
  if (options_.signs != nullptr) options_.signs->Add(socket.get(), link.peer, options_.role);
  connection.socket = std::move(socket);
  Note(link.peer);
  return Status::Ok();
}

TcpTransport::Connection& TcpTransport::Meet(GlobalRank peer) {
  std::unique_ptr<Connection>& connection = connections_[peer.index()];
  if (connection == nullptr) {
    connection = std::make_unique<Connection>(options_.generation, forgotten_);
  }
  return *connection;
}

// The connection to `peer` while the transport is healthy.
TcpTransport::Connection* TcpTransport::Find(GlobalRank peer) {
  if (!failure_.ok()) return nullptr;
  const bool exists = peer.known() && peer.value() < size() && peer != rank();
  const bool linked = exists && connections_[peer.index()] != nullptr;
  if (!linked && (!exists || options_.ask_for_link == nullptr)) {
    failure_ = Status::Internal(Name(rank()) + " has no link to " + Name(peer));
    return nullptr;
  }
  return &Meet(peer);
}

void TcpTransport::AskForLink(GlobalRank peer) {
  Connection& connection = Meet(peer);
  if (connection.socket.valid() || connection.asked) return;
  connection.asked = true;
  options_.ask_for_link(peer);
}

void TcpTransport::Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
                        Transfer* transfer) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  if (bytes > kMaxFrame) {
    failure_ = Status::Internal("a frame of " + std::to_string(bytes) + " bytes exceeds the limit");
    return;
  }
  connection->writer.Post({tag, static_cast<const std::byte*>(data), bytes, transfer});
  AskForLink(peer);
  Note(peer);
}

void TcpTransport::Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
                        Transfer* transfer) {
  Connection* connection = Find(peer);
  if (connection == nullptr) return;
  const Status status =
      connection->reader.Post({tag, static_cast<std::byte*>(data), capacity, transfer});
  if (!status.ok()) return Fail(peer, status);
  Note(peer);
}

void TcpTransport::Forget(uint32_t set) {
  forgotten_.Add(set);
  for (int rank = 0; rank < size(); ++rank) {
    const GlobalRank peer(rank);
    if (connections_[peer.index()] == nullptr) continue;
    connections_[peer.index()]->reader.Forget(set);
    Note(peer);
  }
}

// After a change of what a connection waits for, or has to do.
void TcpTransport::Note(GlobalRank peer) {
  Connection& connection = *connections_[peer.index()];
  if (connection.movable() && !connection.listed) {
    connection.listed = true;
    movable_.push_back(peer);
  }
  const bool expecting = connection.expects();
  expecting_ += static_cast<int>(expecting) - static_cast<int>(connection.expecting);
  connection.expecting = expecting;
}

Status TcpTransport::Progress(bool* moved) {
  *moved = false;
  MoveListed(moved);
  MoveChanged(moved);
  return failure_;
}

void TcpTransport::MoveListed(bool* moved) {
  turn_.swap(movable_);
  for (const GlobalRank peer : turn_) {
    if (!failure_.ok()) break;
    connections_[peer.index()]->listed = false;
    Serve(peer, moved);
  }
  turn_.clear();
}

// A link that has had its turn and is still on the list has the next one.
void TcpTransport::MoveChanged(bool* moved) {
  if (!failure_.ok() || expecting_ == 0) return;
  Poller::Event events[Poller::kMostEvents];
  int count;
  failure_ = poller_.Take(events, &count);
  for (int i = 0; i < count && failure_.ok(); ++i) {
    Connection& connection = *connections_[events[i].peer.index()];
    if (connection.ended) continue;
    if (events[i].readable) connection.reader.SetReadable();
    if (events[i].writable) connection.writer.SetWritable();
    // Over AF_UNIX there would be an event whenever the peer has read something.
    if (connection.tells_of_room && connection.writer.idle()) TellOfRoom(events[i].peer, false);
    if (!connection.listed) Serve(events[i].peer, moved);
  }
}

void TcpTransport::Serve(GlobalRank peer, bool* moved) {
  Connection& connection = *connections_[peer.index()];
  const Status status = Move(&connection, moved);
  if (status.code() == Code::kShutdown && options_.peers_may_leave) {
    End(peer);
  } else if (!status.ok()) {
    return Fail(peer, status);
  }
  if (connection.writer.blocked() && !connection.tells_of_room) TellOfRoom(peer, true);
  Note(peer);
}

Status TcpTransport::Move(Connection* connection, bool* moved) {
  const int socket = connection->socket.get();
  if (connection->writer.movable()) {
    const Status sent = connection->writer.Progress(socket, kBudget, moved);
    const bool has_left = sent.code() == Code::kShutdown && options_.peers_may_leave;
    // Its last words may still lie unread.
    if (has_left) connection->writer.Discard();
    if (!has_left) HVD_RETURN_IF_ERROR(sent);
  }
  return connection->reader.Progress(socket, kBudget, moved);
}

void TcpTransport::TellOfRoom(GlobalRank peer, bool room) {
  Connection& connection = *connections_[peer.index()];
  connection.tells_of_room = room;
  const Status status = poller_.TellOfRoom(connection.socket.get(), peer, room);
  if (failure_.ok()) failure_ = status;
}

void TcpTransport::End(GlobalRank peer) {
  Connection& connection = *connections_[peer.index()];
  connection.ended = true;
  connection.writer.Discard();
  Unwatch(connection);
  failure_ = poller_.Remove(connection.socket.get());
  ended_.push_back(peer);
}

void TcpTransport::Unwatch(const Connection& connection) noexcept {
  if (options_.signs != nullptr) options_.signs->Remove(connection.socket.get());
}

GlobalRank TcpTransport::TakeEnded() {
  if (ended_.empty()) return {};
  const GlobalRank peer = ended_.back();
  ended_.pop_back();
  return peer;
}

// kAborted: the bytes that arrived are none that a sound peer sends.
void TcpTransport::Fail(GlobalRank peer, const Status& status) {
  lost_peer_ = peer;
  lost_to_corruption_ = status.code() == Code::kAborted;
  const std::string what =
      lost_to_corruption_ ? " cannot use what arrives from " : " lost its link to ";
  failure_ = {Code::kAborted, Name(rank()) + what + Name(peer) + ": " + status.message()};
}

void TcpTransport::Close(int64_t linger_us) {
  if (failure_.ok()) failure_ = closed_;
  for (auto& connection : connections_) {
    const bool linked = connection != nullptr && connection->socket.valid();
    if (linked) Unwatch(*connection);
    if (linked) leaving_.push_back(std::move(connection->socket));
    connection.reset();
  }
  movable_.clear();
  expecting_ = 0;
  poller_.Close();
  std::vector<Descriptor> sockets = std::move(leaving_);
  if (linger_us > 0) CloseDelivered(std::move(sockets), linger_us);
}

}  // namespace hvd::tcp
