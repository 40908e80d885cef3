#include "collective/frame_flow.h"

#include <algorithm>

namespace hvd {

std::vector<Frame> Cut(const PieceStream& stream, int64_t frame_bytes, uint32_t first) {
  std::vector<Frame> frames;
  for (int64_t begin = 0; begin < stream.bytes(); begin += frame_bytes) {
    frames.push_back({&stream, begin, std::min(begin + frame_bytes, stream.bytes()), first++});
  }
  return frames;
}

std::byte* FrameReceiver::Place(const Flow& flow, size_t index) const {
  const Frame& frame = frames_[index];
  std::byte* output = frame.stream->Output(frame.begin, frame.end);
  return output != nullptr ? output : flow.scratch + index % kInFlight * kFrameBytes;
}

bool FrameReceiver::Post(const Flow& flow) {
  const size_t before = posted_;
  for (; posted_ < std::min(taken_ + kInFlight, frames_.size()); ++posted_) {
    Transfer& transfer = transfers_[posted_ % kInFlight] = {};
    flow.comm->Recv(peer_, flow.sequence, frames_[posted_].number, Place(flow, posted_),
                    frames_[posted_].bytes(), &transfer);
  }
  return posted_ != before;
}

const Frame* FrameReceiver::Take(const Flow& flow, Status* status) {
  if (taken_ == posted_ || !transfers_[taken_ % kInFlight].done) return nullptr;
  const Frame& frame = frames_[taken_];
  *status = flow.comm->Check(transfers_[taken_ % kInFlight], frame.bytes(), peer_);
  if (!status->ok()) return nullptr;
  const std::byte* place = Place(flow, taken_++);
  if (frame.stream->Output(frame.begin, frame.end) == nullptr)
    frame.stream->Unpack(frame.begin, frame.end, place);
  return &frame;
}

const Frame* FrameSender::Next() {
  while (done_ < posted_ && transfers_[done_ % kInFlight].done) ++done_;
  return posted_all() || posted_ - done_ == kInFlight ? nullptr : &frames_[posted_];
}

void FrameSender::Post(const Flow& flow) {
  const Frame& frame = frames_[posted_];
  const std::byte* from = frame.stream->Input(frame.begin, frame.end);
  if (from == nullptr) {
    std::byte* slot = flow.scratch + posted_ % kInFlight * kFrameBytes;
    frame.stream->Pack(frame.begin, frame.end, slot);
    from = slot;
  }
  Transfer& transfer = transfers_[posted_++ % kInFlight] = {};
  flow.comm->Send(peer_, flow.sequence, frame.number, from, frame.bytes(), &transfer);
}

}  // namespace hvd
