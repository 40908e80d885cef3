#include "runtime/control/control.h"

#include <cstring>
#include <deque>
#include <map>

#include "runtime/control/stream.h"

namespace hvd {

namespace {

constexpr size_t kFrameBytes = 64 << 10;

// The stream to one peer: frames that are on their way keep their bytes here.
class Outgoing {
 public:
  void Send(Transport* transport, GlobalRank peer, uint32_t set, const std::string& stream) {
    for (size_t at = 0; at < stream.size(); at += kFrameBytes) {
      frames_.emplace_back();
      Frame& frame = frames_.back();
      frame.bytes = stream.substr(at, kFrameBytes);
      transport->Send(peer, {set, ++sent_, 0}, frame.bytes.data(), frame.bytes.size(),
                      &frame.transfer);
    }
  }

  bool Reap() {
    const size_t before = frames_.size();
    while (!frames_.empty() && frames_.front().transfer.done) frames_.pop_front();
    return frames_.size() != before;
  }

  bool idle() const { return frames_.empty(); }

 private:
  struct Frame {
    std::string bytes;
    Transfer transfer;
  };
  std::deque<Frame> frames_;  // a deque does not move its elements
  uint64_t sent_ = 0;
};

// The stream from one peer: one receive is always posted.
class Incoming {
 public:
  void Post(Transport* transport, GlobalRank peer, uint32_t set) {
    transfer_ = {};
    buffer_.resize(kFrameBytes);
    transport->Recv(peer, {set, ++received_, 0}, buffer_.data(), buffer_.size(), &transfer_);
  }

  bool Collect() {
    if (!transfer_.done) return false;
    std::memcpy(assembler_.Extend(transfer_.bytes), buffer_.data(), transfer_.bytes);
    return true;
  }

  MessageAssembler::Next Take(std::string* message) { return assembler_.Take(message); }

 private:
  std::vector<char> buffer_;
  Transfer transfer_;
  MessageAssembler assembler_;
  uint64_t received_ = 0;
};

class TransportControl : public Control {
 public:
  TransportControl(Transport* transport, uint32_t set, const Members& members, Position parent,
                   const std::vector<Position>& children)
      : transport_(transport), set_(set), parent_(parent) {
    if (parent.known()) Meet(parent, members);
    for (const Position child : children) Meet(child, members);
  }

  void Announce(const std::string& message) override {
    peers_.at(parent_).out.Send(transport_, peers_.at(parent_).rank, set_, Framed(message));
  }
  void Publish(const std::string& message) override {
    const std::string stream = Framed(message);
    for (auto& [position, peer] : peers_) {
      if (position != parent_) peer.out.Send(transport_, peer.rank, set_, stream);
    }
  }
  bool TakeResponse(std::string* message) override { return Take(parent_, message); }
  bool TakeAnnouncement(Position child, std::string* message) override {
    return Take(child, message);
  }

  Position corrupt() const override { return corrupt_; }
  void Progress(bool* moved) override {
    for (auto& [position, peer] : peers_) {
      *moved |= peer.out.Reap();
      if (!peer.in.Collect()) continue;
      *moved = true;
      peer.in.Post(transport_, peer.rank, set_);
    }
  }

  bool idle() const override {
    for (const auto& [position, peer] : peers_) {
      if (!peer.out.idle()) return false;
    }
    return true;
  }

 private:
  struct Peer {
    GlobalRank rank;
    Outgoing out;
    Incoming in;
  };

  void Meet(Position position, const Members& members) {
    Peer& peer = peers_[position];
    peer.rank = members[position];
    peer.in.Post(transport_, peer.rank, set_);
  }

  static std::string Framed(const std::string& message) {
    std::string stream;
    AppendMessage(message, &stream);
    return stream;
  }

  bool Take(Position position, std::string* message) {
    const MessageAssembler::Next next = peers_.at(position).in.Take(message);
    if (next == MessageAssembler::Next::kCorrupt) corrupt_ = position;
    return next == MessageAssembler::Next::kMessage;
  }

  Transport* transport_;
  uint32_t set_;
  Position parent_;
  std::map<Position, Peer> peers_;  // a map does not move its elements
  Position corrupt_;
};

}  // namespace

std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set,
                                              const Members& members, Position parent,
                                              const std::vector<Position>& children) {
  return std::make_unique<TransportControl>(transport, set, members, parent, children);
}

}  // namespace hvd
