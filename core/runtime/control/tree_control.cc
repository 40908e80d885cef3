#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "runtime/control/control.h"
#include "runtime/control/stream.h"
#include "transport/frames.h"

namespace hvd {

namespace {

constexpr size_t kFrameBytes = 64 << 10;
constexpr uint32_t kChunk = 0;  // of the tags; the others are for watermarks

// Over links with these neighbours. The first member of a host of several has more children, the
// others of its host: through `window`, which is null for any other.
class TreeControl : public Control {
 public:
  TreeControl(std::unique_ptr<Control> window, Transport* transport, uint32_t set,
              const Members& members, Position parent, const std::vector<Position>& neighbours)
      : window_(std::move(window)), parent_(parent) {
    for (const Position position : neighbours)
      peers_.try_emplace(position, transport, members[position], set).first->second.in.Listen();
  }

  void Announce(const std::string& message) override {
    Frame(message);
    peers_.at(parent_).Send(stream_);
  }
  // The longer way first.
  void Publish(const std::string& message) override {
    Frame(message);
    for (auto& [position, peer] : peers_) {
      if (position != parent_) peer.Send(stream_);
    }
    if (window_ != nullptr) window_->Publish(message);
  }
  bool Take(Position neighbour, std::string* message) override {
    const auto peer = peers_.find(neighbour);
    if (peer == peers_.end()) return window_->Take(neighbour, message);
    const MessageAssembler::Next next = peer->second.assembler.Take(message);
    if (next == MessageAssembler::Next::kCorrupt) corrupt_ = neighbour;
    return next == MessageAssembler::Next::kMessage;
  }

  void Progress(bool* moved) override {
    for (auto& [position, peer] : peers_) {
      *moved |= peer.out.Reap() > 0;
      if (!peer.in.Take()) continue;
      *moved = true;
      std::memcpy(peer.assembler.Extend(peer.in.bytes()), peer.in.data(), peer.in.bytes());
      peer.in.Listen();
    }
    if (window_ != nullptr) window_->Progress(moved);
  }
  Position corrupt() const override {
    return corrupt_.known() || window_ == nullptr ? corrupt_ : window_->corrupt();
  }
  bool idle() const override {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return peer.second.out.idle(); }) &&
           (window_ == nullptr || window_->idle());
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

  const std::unique_ptr<Control> window_;
  const Position parent_;
  std::map<Position, Peer> peers_;  // a map does not move its elements
  std::string stream_;              // message bytes, reused
  Position corrupt_;
};

}  // namespace

std::unique_ptr<Control> MakeTreeControl(std::unique_ptr<Control> window, Transport* transport,
                                         uint32_t set, const Members& members,
                                         const Topology& topology, Position position) {
  const Topology::TreePlace place = topology.TreePlaceOf(position);
  const bool below = place.parent.known() && topology.ShareMemory(position, place.parent);
  if (window != nullptr && (below || topology.hosts() == 1)) return window;
  std::vector<Position> neighbours;
  if (place.parent.known()) neighbours.push_back(place.parent);
  for (const Topology::TreePlace::Child& child : place.children) {
    if (!topology.ShareMemory(position, child.at) && child.at != position)
      neighbours.push_back(child.at);
  }
  return std::make_unique<TreeControl>(std::move(window), transport, set, members, place.parent,
                                       neighbours);
}

}  // namespace hvd
