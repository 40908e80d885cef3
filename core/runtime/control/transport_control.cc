#include "runtime/control/control.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/control/stream.h"
#include "transport/frames.h"

namespace hvd {

namespace {

constexpr size_t kFrameBytes = 64 << 10;
constexpr uint32_t kChunk = 0;  // of the tags; the others are for watermarks

class TransportControl : public Control {
 public:
  TransportControl(Transport* transport, uint32_t set, const Members& members, Position parent,
                   const std::vector<Position>& children)
      : parent_(parent) {
    std::vector<Position> neighbours = children;
    if (parent.known()) neighbours.push_back(parent);
    for (const Position position : neighbours)
      peers_.try_emplace(position, transport, members[position], set).first->second.in.Listen();
  }

  void Announce(const std::string& message) override {
    Frame(message);
    peers_.at(parent_).Send(stream_);
  }
  void Publish(const std::string& message) override {
    Frame(message);
    for (auto& [position, peer] : peers_) {
      if (position != parent_) peer.Send(stream_);
    }
  }
  bool Take(Position neighbour, std::string* message) override {
    const MessageAssembler::Next next = peers_.at(neighbour).assembler.Take(message);
    if (next == MessageAssembler::Next::kCorrupt) corrupt_ = neighbour;
    return next == MessageAssembler::Next::kMessage;
  }

  Position corrupt() const override { return corrupt_; }
  void Progress(bool* moved) override {
    for (auto& [position, peer] : peers_) {
      *moved |= peer.out.Reap() > 0;
      if (!peer.in.Take()) continue;
      *moved = true;
      std::memcpy(peer.assembler.Extend(peer.in.bytes()), peer.in.data(), peer.in.bytes());
      peer.in.Listen();
    }
  }

  bool idle() const override {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return peer.second.out.idle(); });
  }

 private:
  struct Peer {
    Peer(Transport* transport, GlobalRank rank, uint32_t set)
        : out(transport, rank, set, kChunk), in(transport, rank, set, kChunk, kFrameBytes) {}
    void Send(const std::string& stream) {
      for (size_t at = 0; at < stream.size(); at += kFrameBytes)
        out.Send(stream.data() + at, std::min(kFrameBytes, stream.size() - at), nullptr, 0);
    }

    FramesOut out;
    FramesIn in;
    MessageAssembler assembler;
  };

  void Frame(const std::string& message) {
    stream_.clear();
    AppendMessage(message, &stream_);
  }

  const Position parent_;
  std::map<Position, Peer> peers_;  // a map does not move its elements
  std::string stream_;              // message bytes, reused
  Position corrupt_;
};

}  // namespace

std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set,
                                              const Members& members, Position parent,
                                              const std::vector<Position>& children) {
  return std::make_unique<TransportControl>(transport, set, members, parent, children);
}

}  // namespace hvd
