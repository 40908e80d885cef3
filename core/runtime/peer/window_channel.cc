#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/peer/channel.h"
#include "runtime/peer/ring.h"
#include "transport/mapping.h"

namespace hvd::peer {

namespace {

constexpr size_t kLine = 128;  // the processor fetches cache lines in pairs
constexpr size_t kLargestRing = 1 << 20;
constexpr size_t kSmallestRing = 64 << 10;
constexpr size_t kAllRings = 64 << 20;  // of all pairs together, as far as the smallest allows
constexpr size_t kInlineBytes = 16 << 10;
constexpr size_t kPartBytes = 64 << 10;   // of a payload, at most
constexpr size_t kCallBytes = 256 << 10;  // of payloads that one call moves for a peer

static_assert(kInlineBytes <= MostInlined(kSmallestRing), "every frame fits every ring");

// What this rank has written for one peer, and read of what that has written.
struct PairLines {
  alignas(kLine) Flag written;
  alignas(kLine) Flag consumed;
};

size_t RingBytes(int members) {
  const auto n = static_cast<size_t>(members);
  size_t bytes = kLargestRing;
  while (bytes > kSmallestRing && bytes * n * n > kAllRings) bytes /= 2;
  return bytes;
}

size_t LinesBytes(int members) {
  return WholePages(sizeof(PairLines) * static_cast<size_t>(members));
}

struct PayloadOut {
  uint64_t number;
  const std::byte* data;
  size_t bytes;
  size_t sent;
  Transfer* transfer;
};

struct PayloadIn {
  std::byte* data;
  size_t bytes;
  size_t received;
  Transfer* transfer;
};

// A frame that found no room.
struct HeldFrame {
  Frame frame;
  std::vector<std::byte> inlined;
};

struct Pair {
  Position position;  // of the peer
  RingOut out;
  RingIn in;
  std::deque<HeldFrame> held;
  std::deque<PayloadOut> sending;
  std::unordered_map<uint64_t, PayloadIn> receiving;  // by number of the message
};

class WindowChannel : public Channel {
 public:
  WindowChannel(std::unique_ptr<Window> window, Members members, SegmentId id)
      : window_(std::move(window)),
        members_(std::move(members)),
        part_bytes_(std::min(kPartBytes, RingBytes(members_.size()) / 4)) {
    const Position self = window_->position();
    const size_t ring = RingBytes(members_.size());
    const size_t rings = LinesBytes(members_.size());
    const auto lines = [&](Position of, Position with) {
      return reinterpret_cast<PairLines*>(window_->Span(of, id)) + with.index();
    };
    const auto bytes = [&](Position from, Position to) {
      return window_->Span(from, id) + rings + ring * to.index();
    };
    for (Position peer(0); peer.value() < members_.size(); peer = Next(peer)) {
      PairLines* const mine = lines(self, peer);
      PairLines* const theirs = lines(peer, self);
      pairs_.push_back({peer,
                        {bytes(self, peer), ring, &mine->written, &theirs->consumed},
                        {bytes(peer, self), ring, &theirs->written, &mine->consumed},
                        {},
                        {},
                        {}});
    }
  }

  size_t inline_bytes() const override { return kInlineBytes; }
  size_t unasked_bytes() const override { return kInlineBytes; }

  void Send(GlobalRank peer, const Frame& frame, const std::byte* inlined) override {
    Pair& pair = Of(peer);
    if (pair.held.empty() && pair.out.Put(frame, inlined))
      return pair.out.Publish(window_.get(), pair.position);
    pair.held.push_back({frame, {inlined, inlined + frame.inlined}});
    ++unsent_;
  }

  void SendPayload(GlobalRank peer, uint64_t number, const std::byte* data, size_t bytes,
                   Transfer* transfer) override {
    Of(peer).sending.push_back({number, data, bytes, 0, transfer});
    ++unsent_;
  }

  void ReceivePayload(GlobalRank peer, uint64_t number, std::byte* data, size_t bytes,
                      Transfer* transfer) override {
    Of(peer).receiving[number] = {data, bytes, 0, transfer};
  }

  bool Take(GlobalRank peer, Frame* frame, const std::byte** inlined, bool* moved) override {
    Pair& pair = Of(peer);
    size_t received = 0;
    pair.in.Release();
    while (received < kCallBytes && pair.in.Next(frame, inlined)) {
      *moved = true;
      if (frame->kind != FrameKind::kPayload) return true;
      if (!Receive(&pair, *frame, *inlined)) return false;
      received += frame->inlined;
      pair.in.Release();
      if (pair.in.owes_room()) pair.in.Publish(window_.get(), pair.position);
    }
    pair.in.Publish(window_.get(), pair.position);
    if (!pair.in.broken().empty()) Break(pair, pair.in.broken());
    return false;
  }

  void Progress(bool* moved) override {
    if (unsent_ == 0) return;
    for (Pair& pair : pairs_) {
      SendHeld(&pair, moved);
      SendParts(&pair, moved);
      if (pair.out.broken()) Break(pair, "a count of bytes that it cannot have read");
    }
  }

  bool idle() const override { return unsent_ == 0; }
  const Status& broken() const override { return broken_; }
  void Arm(bool sleeping) override { window_->Arm(sleeping); }

 private:
  Pair& Of(GlobalRank peer) { return pairs_[members_.Find(peer).index()]; }

  void SendHeld(Pair* pair, bool* moved) {
    while (!pair->held.empty()) {
      const HeldFrame& held = pair->held.front();
      if (!pair->out.Put(held.frame, held.inlined.data())) break;
      pair->held.pop_front();
      --unsent_;
      *moved = true;
    }
    pair->out.Publish(window_.get(), pair->position);
  }

  // Each part is told of at once: the reader copies one while the next is written.
  void SendParts(Pair* pair, bool* moved) {
    size_t sent = 0;
    while (pair->held.empty() && !pair->sending.empty() && sent < kCallBytes) {
      PayloadOut& payload = pair->sending.front();
      Frame part;
      part.kind = FrameKind::kPayload;
      part.number = payload.number;
      part.bytes = payload.bytes;
      part.inlined = static_cast<uint32_t>(std::min(part_bytes_, payload.bytes - payload.sent));
      if (!pair->out.Put(part, payload.data + payload.sent)) return;
      pair->out.Publish(window_.get(), pair->position);
      payload.sent += part.inlined;
      sent += part.inlined;
      *moved = true;
      if (payload.sent < payload.bytes) continue;
      payload.transfer->done = true;
      pair->sending.pop_front();
      --unsent_;
    }
  }

  bool Receive(Pair* pair, const Frame& part, const std::byte* data) {
    const auto found = pair->receiving.find(part.number);
    if (found == pair->receiving.end()) return Break(*pair, "a payload that nobody waits for");
    PayloadIn& payload = found->second;
    if (part.inlined == 0 || part.inlined > payload.bytes - payload.received)
      return Break(*pair, "a payload longer than its message");
    std::copy_n(data, part.inlined, payload.data + payload.received);
    payload.received += part.inlined;
    if (payload.received < payload.bytes) return true;
    payload.transfer->bytes = payload.bytes;
    payload.transfer->done = true;
    pair->receiving.erase(found);
    return true;
  }

  // Anybody who shares the memory may have written into it.
  bool Break(const Pair& pair, const std::string& what) {
    if (broken_.ok()) {
      broken_ = Status::Aborted("the shared memory between " + Name(members_[window_->position()]) +
                                " and " + Name(members_[pair.position]) + " is corrupt: " + what);
    }
    return false;
  }

  const std::unique_ptr<Window> window_;
  const Members members_;
  const size_t part_bytes_;
  std::vector<Pair> pairs_;  // by position; that with itself is not used
  size_t unsent_ = 0;        // frames and payloads
  Status broken_;
};

}  // namespace

WindowNeeds ChannelNeeds(int members) {
  const size_t lines = LinesBytes(members);
  return {lines + RingBytes(members) * static_cast<size_t>(members), lines};
}

Status MakeWindowChannel(std::unique_ptr<Window> window, Members members,
                         std::unique_ptr<Channel>* channel) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(ChannelNeeds(members.size()).bytes, &id));
  *channel = std::make_unique<WindowChannel>(std::move(window), std::move(members), id);
  return Status::Ok();
}

}  // namespace hvd::peer
