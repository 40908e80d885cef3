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

// Smaller frames, and those before, all go over the first link to a peer.
constexpr size_t kSpreadBytes = 8 << 10;
constexpr uint32_t kFirstSpread = 8;

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
  const int strand = StrandOf(link.role);
  const bool known = Exists(link.peer) && strand < options_.strands;
  if (!known || Meet(LinkOf(link.peer, strand)).socket.valid()) {
    return Status::Internal("a second or impossible link to " + Name(link.peer));
  }
  const size_t number = LinkOf(link.peer, strand);
  Connection& connection = *connections_[number];
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
  HVD_RETURN_IF_ERROR(poller_.Add(socket.get(), number));
  if (options_.signs != nullptr) options_.signs->Add(socket.get(), link.peer, options_.role);
  connection.socket = std::move(socket);
  Note(number);
  return Status::Ok();
}

// The frames of an operation are numbered in their order, those of its parts with gaps of 128 or
// more: so they are spread by a hash of the number. What is small and the first frames of what is
// large go over one link, where one call of the system takes several.
size_t TcpTransport::LinkOf(GlobalRank peer, const FrameTag& tag, size_t bytes) const {
  constexpr uint32_t kHash = 2654435769;  // 2^32 by the golden ratio
  const bool is_first = tag.chunk / 128 + tag.chunk % 128 < kFirstSpread;
  const bool spread = bytes >= kSpreadBytes && !is_first;
  const uint32_t hash = tag.chunk * kHash >> 16;
  return LinkOf(peer,
                spread ? static_cast<int>(hash % static_cast<uint32_t>(options_.strands)) : 0);
}

TcpTransport::Connection& TcpTransport::Meet(size_t link) {
  std::unique_ptr<Connection>& connection = connections_[link];
  if (connection == nullptr) {
    connection = std::make_unique<Connection>(options_.generation, forgotten_);
  }
  return *connection;
}

// The connection that a frame goes over, while the transport is healthy.
TcpTransport::Connection* TcpTransport::Find(GlobalRank peer, const FrameTag& tag, size_t bytes,
                                             size_t* link) {
  if (!failure_.ok()) return nullptr;
  const bool exists = Exists(peer);
  if (exists) *link = LinkOf(peer, tag, bytes);
  const bool linked = exists && connections_[*link] != nullptr;
  if (!linked && (!exists || options_.ask_for_link == nullptr)) {
    failure_ = Status::Internal(Name(rank()) + " has no link to " + Name(peer));
    return nullptr;
  }
  return &Meet(*link);
}

void TcpTransport::AskForLink(size_t link) {
  Connection& connection = *connections_[link];
  if (connection.socket.valid() || connection.asked) return;
  connection.asked = true;
  const int strand = static_cast<int>(link) % options_.strands;
  options_.ask_for_link(PeerOf(link), strand == 0 ? options_.role : DataRole(strand));
}

void TcpTransport::Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
                        Transfer* transfer) {
  size_t link = 0;
  Connection* connection = Find(peer, tag, bytes, &link);
  if (connection == nullptr) return;
  if (bytes > kMaxFrame) {
    failure_ = Status::Internal("a frame of " + std::to_string(bytes) + " bytes exceeds the limit");
    return;
  }
  connection->writer.Post({tag, static_cast<const std::byte*>(data), bytes, transfer});
  AskForLink(link);
  Note(link);
}

void TcpTransport::Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
                        Transfer* transfer) {
  size_t link = 0;
  Connection* connection = Find(peer, tag, capacity, &link);
  if (connection == nullptr) return;
  const Status status =
      connection->reader.Post({tag, static_cast<std::byte*>(data), capacity, transfer});
  if (!status.ok()) return Fail(peer, status);
  Note(link);
}

void TcpTransport::Forget(uint32_t set) {
  forgotten_.Add(set);
  for (size_t link = 0; link < connections_.size(); ++link) {
    if (connections_[link] == nullptr) continue;
    connections_[link]->reader.Forget(set);
    Note(link);
  }
}

// After a change of what a connection waits for, or has to do.
void TcpTransport::Note(size_t link) {
  Connection& connection = *connections_[link];
  if (connection.movable() && !connection.listed) {
    connection.listed = true;
    movable_.push_back(link);
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
  for (const size_t link : turn_) {
    if (!failure_.ok()) break;
    connections_[link]->listed = false;
    Serve(link, moved);
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
    Connection& connection = *connections_[events[i].link];
    if (connection.ended) continue;
    if (events[i].readable) connection.reader.SetReadable();
    if (events[i].writable) connection.writer.SetWritable();
    // Over AF_UNIX there would be an event whenever the peer has read something.
    if (connection.tells_of_room && connection.writer.idle()) TellOfRoom(events[i].link, false);
    if (!connection.listed) Serve(events[i].link, moved);
  }
}

void TcpTransport::Serve(size_t link, bool* moved) {
  Connection& connection = *connections_[link];
  const Status status = Move(&connection, moved);
  if (status.code() == Code::kShutdown && options_.peers_may_leave) {
    End(link);
  } else if (!status.ok()) {
    return Fail(PeerOf(link), status);
  }
  if (connection.writer.blocked() && !connection.tells_of_room) TellOfRoom(link, true);
  Note(link);
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

void TcpTransport::TellOfRoom(size_t link, bool room) {
  Connection& connection = *connections_[link];
  connection.tells_of_room = room;
  const Status status = poller_.TellOfRoom(connection.socket.get(), link, room);
  if (failure_.ok()) failure_ = status;
}

void TcpTransport::End(size_t link) {
  Connection& connection = *connections_[link];
  connection.ended = true;
  connection.writer.Discard();
  Unwatch(connection);
  failure_ = poller_.Remove(connection.socket.get());
  ended_.push_back(PeerOf(link));
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
