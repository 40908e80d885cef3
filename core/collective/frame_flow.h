#pragma once

#include <vector>

#include "collective/piece_stream.h"
#include "collective/queues.h"

namespace hvd {

// A stretch of a stream: what crosses a link, or lies in a staging slot, at once. At most
// kFrameBytes.
struct Frame {
  const PieceStream* stream = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t number = 0;  // among the frames of its operation; equal on all ranks
  size_t bytes() const { return static_cast<size_t>(end - begin); }
  bool spread() const { return begin < end && !stream->HasInOne(begin, end); }  // over tensors
};
using Frames = std::vector<Frame>;

// Cuts a stream in frames, numbered from `first` on.
Frames Cut(const PieceStream& stream, int64_t frame_bytes, uint32_t first);

// The frames that go one way between two ranks, in their order: straight from and into the tensors,
// or by way of room of their own where they are spread over several.
class FrameFlow {
 public:
  // For those under way at once.
  size_t RoomBytes() const;
  void SetRoom(std::byte* room) { room_ = room; }

 protected:
  explicit FrameFlow(Frames frames);
  std::byte* Room(size_t index) const { return room_ + index % kInFlight * room_bytes_; }

  Frames frames_;

 private:
  size_t room_bytes_ = 0;  // of one frame
  std::byte* room_ = nullptr;
};

// A receive waits for nothing but the arrival of earlier ones, so no frame stays at the head of a
// link.
class FrameReceiver : public FrameFlow {
 public:
  FrameReceiver(const ReceiveQueue& queue, Frames frames)
      : FrameFlow(std::move(frames)), queue_(queue) {}

  // Posts what may be under way; true: something was posted.
  bool Post();
  // The next frame that has arrived, in the outputs now; null when there is none, or *status says
  // what is wrong with it.
  const Frame* Take(Status* status);
  bool done() const { return queue_.taken() == frames_.size(); }

 private:
  std::byte* Place(size_t index) const;

  ReceiveQueue queue_;
};

class FrameSender : public FrameFlow {
 public:
  FrameSender(const SendQueue& queue, Frames frames)
      : FrameFlow(std::move(frames)), queue_(queue) {}

  // The next to be sent, if so few are under way that it may be; else null.
  const Frame* Next();
  // Posts it.
  void Post();
  size_t unposted() const { return frames_.size() - queue_.posted(); }
  bool done() { return queue_.sent() == frames_.size(); }

 private:
  SendQueue queue_;
};

// All that one rank receives and sends in an operation.
class FrameExchange {
 public:
  FrameExchange(const Communicator& comm, uint64_t sequence) : comm_(comm), sequence_(sequence) {}
  FrameExchange(const FrameExchange&) = delete;
  FrameExchange& operator=(const FrameExchange&) = delete;

  void Receive(int peer, Frames frames);
  void Send(int peer, Frames frames);
  // After these, before all else.
  Status BorrowRoom();

  bool PostReceives();
  // As FrameReceiver's, of any peer.
  const Frame* Take(Status* status);
  // Posts a frame that is `here`, by number, to whoever's turn it is; false: none can be.
  bool SendNext(const std::vector<bool>& here);
  std::vector<FrameSender>& senders() { return senders_; }  // in the order of Send
  bool posted_all() const;
  bool done();

 private:
  const Communicator comm_;
  const uint64_t sequence_;
  std::vector<FrameReceiver> receivers_;
  std::vector<FrameSender> senders_;
  size_t turn_ = 0;
  ScratchPool::Lease room_;
};

}  // namespace hvd
