#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "runtime/peer/channel.h"
#include "transport/frames.h"

namespace hvd::peer {

namespace {

constexpr size_t kInlineBytes = 1 << 10;    // sealed, byte for byte
constexpr size_t kUnaskedBytes = 64 << 10;  // beside them, with a checksum
constexpr size_t kPieceBytes = 4 << 20;     // of a payload, in a frame of the transport
constexpr size_t kPiecesAtOnce = 2;         // queued, so that what others send gets its turn

size_t Pieces(size_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// A payload on its way, in pieces that are numbered from 0.
struct Payload {
  uint64_t number;
  std::byte* data;  // of a payload that is sent it is only read
  size_t bytes;
  Transfer* transfer;
  std::vector<Transfer> pieces;
  size_t begun = 0;  // pieces
  size_t done = 0;

  Payload(uint64_t n, std::byte* d, size_t b, Transfer* t)
      : number(n), data(d), bytes(b), transfer(t), pieces(Pieces(b)) {}

  size_t PieceBytes(size_t piece) const {
    return std::min(kPieceBytes, bytes - piece * kPieceBytes);
  }
  FrameTag TagOf(size_t piece) const { return {kChannelSet, number, static_cast<uint32_t>(piece)}; }
  bool Collect(bool* moved) {
    for (; done < begun && pieces[done].done; ++done) *moved = true;
    return done == pieces.size();
  }
  void Finish() {
    transfer->bytes = bytes;
    transfer->done = true;
  }
};

struct Line {
  FramesOut out;
  FramesIn in;
  std::deque<std::unique_ptr<Payload>> sending;
  std::vector<std::unique_ptr<Payload>> receiving;
};

class TransportChannel : public Channel {
 public:
  TransportChannel(Transport* control, Transport* data) : data_(data) {
    for (int rank = 0; rank < control->size(); ++rank) {
      lines_.push_back({{control, GlobalRank(rank), kChannelSet, 0},
                        {control, GlobalRank(rank), kChannelSet, 0, kFrameBytes + kInlineBytes},
                        {},
                        {}});
    }
  }

  size_t inline_bytes() const override { return kInlineBytes; }
  size_t unasked_bytes() const override { return kUnaskedBytes; }

  void Send(GlobalRank peer, const Frame& frame, const std::byte* inlined) override {
    const FrameHead head = Encode(frame);
    lines_[peer.index()].out.Send(head.data(), head.size(), inlined, frame.inlined);
    ++unsent_;
  }

  void SendPayload(GlobalRank peer, uint64_t number, const std::byte* data, size_t bytes,
                   Transfer* transfer) override {
    lines_[peer.index()].sending.push_back(
        std::make_unique<Payload>(number, const_cast<std::byte*>(data), bytes, transfer));
    ++unsent_;
    bool moved;
    Pump(peer, &moved);
  }

  void ReceivePayload(GlobalRank peer, uint64_t number, std::byte* data, size_t bytes,
                      Transfer* transfer) override {
    auto payload = std::make_unique<Payload>(number, data, bytes, transfer);
    for (size_t& piece = payload->begun; piece < payload->pieces.size(); ++piece) {
      data_->Recv(peer, payload->TagOf(piece), data + piece * kPieceBytes,
                  payload->PieceBytes(piece), &payload->pieces[piece]);
    }
    lines_[peer.index()].receiving.push_back(std::move(payload));
  }

  bool Take(GlobalRank peer, Frame* frame, const std::byte** inlined, bool* moved) override {
    FramesIn& in = lines_[peer.index()].in;
    CollectReceived(peer, moved);
    in.Listen();
    if (!in.Take()) return false;
    *moved = true;
    const size_t bytes = in.bytes();
    const Status status = bytes < kFrameBytes ? Status::Aborted("a frame that is too short")
                                              : Decode(in.data(), frame);
    if (!status.ok()) return Break(peer, status.message());
    if (frame->inlined != bytes - kFrameBytes) return Break(peer, "a frame of another length");
    *inlined = in.data() + kFrameBytes;
    return true;
  }

  void Progress(bool* moved) override {
    if (unsent_ == 0) return;
    for (size_t rank = 0; rank < lines_.size(); ++rank) {
      Line& line = lines_[rank];
      const size_t sent = line.out.Reap();
      *moved |= sent > 0;
      unsent_ -= sent;
      if (!line.sending.empty()) Pump(GlobalRank(static_cast<int>(rank)), moved);
    }
  }

  bool idle() const override { return unsent_ == 0; }
  const Status& broken() const override { return broken_; }

 private:
  void Pump(GlobalRank peer, bool* moved) {
    std::deque<std::unique_ptr<Payload>>& sending = lines_[peer.index()].sending;
    while (!sending.empty()) {
      Payload& payload = *sending.front();
      if (payload.Collect(moved)) {
        payload.Finish();
        sending.pop_front();
        --unsent_;
        continue;
      }
      if (payload.begun == payload.pieces.size() || payload.begun - payload.done >= kPiecesAtOnce)
        return;
      const size_t piece = payload.begun++;
      data_->Send(peer, payload.TagOf(piece), payload.data + piece * kPieceBytes,
                  payload.PieceBytes(piece), &payload.pieces[piece]);
      *moved = true;
    }
  }

  void CollectReceived(GlobalRank peer, bool* moved) {
    auto& receiving = lines_[peer.index()].receiving;
    const auto over = [&](const std::unique_ptr<Payload>& payload) {
      if (!payload->Collect(moved)) return false;
      const size_t last = payload->pieces.size() - 1;
      for (size_t piece = 0; piece <= last; ++piece) {
        if (payload->pieces[piece].bytes != payload->PieceBytes(piece))
          Break(peer, "a payload shorter than its message");
      }
      payload->Finish();
      return true;
    };
    receiving.erase(std::remove_if(receiving.begin(), receiving.end(), over), receiving.end());
  }

  bool Break(GlobalRank peer, const std::string& what) {
    if (broken_.ok()) broken_ = Status::Aborted(Name(peer) + " has sent " + what);
    return false;
  }

  Transport* const data_;
  std::deque<Line> lines_;  // by rank; a deque does not move its elements
  size_t unsent_ = 0;       // frames and payloads
  Status broken_;
};

}  // namespace

std::unique_ptr<Channel> MakeTransportChannel(Transport* control, Transport* data) {
  return std::make_unique<TransportChannel>(control, data);
}

}  // namespace hvd::peer
