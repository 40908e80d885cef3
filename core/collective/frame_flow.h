#pragma once

#include <array>
#include <vector>

#include "collective/communicator.h"
#include "collective/piece_stream.h"

namespace hvd {

// A stretch of a stream: what crosses a link, or lies in a staging slot, at once. At most
// kFrameBytes.
struct Frame {
  const PieceStream* stream = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t number = 0;  // among the frames of its operation; equal on all ranks
  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

// Cuts a stream in frames, numbered from `first` on.
std::vector<Frame> Cut(const PieceStream& stream, int64_t frame_bytes, uint32_t first);

// The links that an operation uses in one direction.
struct Flow {
  const Communicator* comm = nullptr;
  uint64_t sequence = 0;
  // Room for kInFlight frames of every peer; null where each frame lies in one piece.
  std::byte* scratch = nullptr;
};

// The frames that one peer sends, in their order, on their way into the outputs: straight, or by
// way of scratch where a frame is spread over several tensors. A receive waits for nothing but the
// arrival of earlier ones, so no frame stays at the head of a link.
class FrameReceiver {
 public:
  FrameReceiver(int peer, std::vector<Frame> frames) : peer_(peer), frames_(std::move(frames)) {}

  // Posts what may be under way; true: something was posted.
  bool Post(const Flow& flow);
  // The next frame that has arrived, in the outputs now; null when there is none, or *status says
  // what is wrong with it.
  const Frame* Take(const Flow& flow, Status* status);
  bool done() const { return taken_ == frames_.size(); }

 private:
  std::byte* Place(const Flow& flow, size_t index) const;

  int peer_;
  std::vector<Frame> frames_;
  size_t posted_ = 0;
  size_t taken_ = 0;
  std::array<Transfer, kInFlight> transfers_;
};

// The frames that one peer is sent, in their order, from the inputs of their streams.
class FrameSender {
 public:
  FrameSender(int peer, std::vector<Frame> frames) : peer_(peer), frames_(std::move(frames)) {}

  // The next to be sent, if so few are under way that it may be; else null.
  const Frame* Next();
  // Posts it.
  void Post(const Flow& flow);
  bool posted_all() const { return posted_ == frames_.size(); }
  bool done() const { return done_ == frames_.size(); }

 private:
  int peer_;
  std::vector<Frame> frames_;
  size_t posted_ = 0;
  size_t done_ = 0;
  std::array<Transfer, kInFlight> transfers_;
};

}  // namespace hvd
