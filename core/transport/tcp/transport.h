#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/rank.h"
#include "transport/descriptor.h"
#include "transport/link_signs.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/reader.h"
#include "transport/tcp/writer.h"

namespace hvd::tcp {

// Transport over connected stream sockets (TCP, or AF_UNIX on one host): for each peer a link, or
// several, over which large frames are spread by their tags.
//
// What can be moved is on a list: a link gets there when something is posted or when the poller
// tells of it, and stays until it can go no further. So idle links cost nothing, however many there
// are. Whoever sleeps on poll_fd first calls Progress until it moves nothing, with nothing posted
// since: then the list is empty. A peer that closes is an error as soon as something is expected
// from it or sent to it.
//
// A link may come later than what is posted with its peer, which then waits for it. Who sends asks
// for it; who receives need not: it comes with what is sent.
class TcpTransport : public Transport {
 public:
  struct Options {
    uint32_t generation = 0;
    GlobalRank rank{0};
    int size = 1;
    Integrity integrity = Integrity::kChecksum;
    bool peers_may_leave = false;  // see TakeEnded
    // Told of each link, once, over which something is to be sent and that there is not: AddLink
    // brings it, sooner or later. Must not wait. Null: without a link nobody can be talked to.
    std::function<void(GlobalRank peer, LinkRole role)> ask_for_link = nullptr;
    // Where its sockets are watched, and as links of which role; null: nowhere.
    LinkSigns* signs = nullptr;
    LinkRole role = LinkRole::kData;
    bool encrypted = false;  // what goes over TCP; within a host nothing has to be
    // Links for data to each peer, at most kMostStrands; the same on all ranks. A network may limit
    // what one connection gets, or send each of them another way. With more than one a receive must
    // be posted with the length that is sent.
    int strands = 1;
  };

  // Takes the sockets of `links`, whatever it returns.
  static Status Make(const Options& options, const std::vector<Link>& links,
                     std::unique_ptr<TcpTransport>* out);

  // A link that has been made since. What is posted with its peer goes on.
  Status AddLink(const Link& link, Descriptor socket);

  ~TcpTransport() override { Close(0); }
  GlobalRank rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
            Transfer* transfer) override;
  void Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
            Transfer* transfer) override;
  void Forget(uint32_t set) override;
  Status Progress(bool* moved) override;
  GlobalRank lost_peer() const override { return lost_peer_; }
  bool lost_to_corruption() const override { return lost_to_corruption_; }
  GlobalRank TakeEnded() override;
  int poll_fd() const override { return failure_.ok() && expecting_ > 0 ? poller_.fd() : -1; }
  void Close(int64_t linger_us) override;

 private:
  struct Connection {
    Connection(uint32_t generation, const IdRanges& forgotten)
        : writer(generation), reader(generation, forgotten) {}
    bool open() const { return socket.valid() && !ended; }
    bool movable() const { return open() && (writer.movable() || reader.movable()); }
    bool expects() const { return open() && (writer.blocked() || reader.wants()); }

    Descriptor socket;  // none: the link is still to come
    FrameWriter writer;
    FrameReader reader;
    bool asked = false;          // for the link
    bool ended = false;          // the peer has left
    bool listed = false;         // in movable_
    bool expecting = false;      // counted in expecting_
    bool tells_of_room = false;  // the poller does
  };

  explicit TcpTransport(const Options& options)
      : options_(options), connections_(static_cast<size_t>(options.size * options.strands)) {}
  // Links are numbered, those of a peer one after another.
  size_t LinkOf(GlobalRank peer, int strand) const {
    return peer.index() * static_cast<size_t>(options_.strands) + static_cast<size_t>(strand);
  }
  size_t LinkOf(GlobalRank peer, const FrameTag& tag, size_t bytes) const;
  GlobalRank PeerOf(size_t link) const {
    return GlobalRank(static_cast<int>(link) / options_.strands);
  }
  bool Exists(GlobalRank peer) const {
    return peer.known() && peer.value() < size() && peer != rank();
  }
  Connection& Meet(size_t link);
  Connection* Find(GlobalRank peer, const FrameTag& tag, size_t bytes, size_t* link);
  void AskForLink(size_t link);
  void Note(size_t link);
  void MoveListed(bool* moved);
  void MoveChanged(bool* moved);
  void Serve(size_t link, bool* moved);
  Status Move(Connection* connection, bool* moved);
  void TellOfRoom(size_t link, bool room);
  void End(size_t link);
  void Unwatch(const Connection& connection) noexcept;
  void Fail(GlobalRank peer, const Status& status);

  const Options options_;
  Poller poller_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by link; null: unused
  std::vector<size_t> movable_;                           // links for the next Progress
  std::vector<size_t> turn_;                              // those of this one; empty between two
  int expecting_ = 0;  // links of which an event may be worth something
  Status failure_;
  GlobalRank lost_peer_;
  bool lost_to_corruption_ = false;
  std::vector<GlobalRank> ended_;  // not yet taken
  // For Close, which must succeed when there is no memory: its error, and room for all sockets.
  const Status closed_{Code::kShutdown, "the transport is closed"};
  std::vector<Descriptor> leaving_;
  size_t sockets_ = 0;  // that there have been
  IdRanges forgotten_;  // sets
};

}  // namespace hvd::tcp
