#include "collective/frame_flow.h"

#include <algorithm>
#include <utility>

namespace hvd {

Frames Cut(const PieceStream& stream, int64_t frame_bytes, uint32_t first) {
  Frames frames;
  for (int64_t begin = 0; begin < stream.bytes(); begin += frame_bytes) {
    frames.push_back({&stream, begin, std::min(begin + frame_bytes, stream.bytes()), first++});
  }
  return frames;
}

FrameFlow::FrameFlow(Frames frames) : frames_(std::move(frames)) {
  for (const Frame& frame : frames_) {
    if (frame.spread()) room_bytes_ = std::max(room_bytes_, frame.bytes());
  }
}

size_t FrameFlow::RoomBytes() const { return room_bytes_ * std::min(frames_.size(), kInFlight); }

std::byte* FrameReceiver::Place(size_t index) const {
  const Frame& frame = frames_[index];
  if (frame.bytes() == 0) return nullptr;
  return frame.spread() ? Room(index) : frame.stream->Output(frame.begin, frame.end);
}

bool FrameReceiver::Post() {
  const size_t before = queue_.posted();
  while (queue_.posted() < frames_.size() && queue_.MayPost()) {
    const size_t index = queue_.posted();
    queue_.Post(Place(index), frames_[index].bytes());
  }
  return queue_.posted() != before;
}

const Frame* FrameReceiver::Take(Status* status) {
  if (!queue_.HasArrived()) return nullptr;
  const size_t index = queue_.taken();
  *status = queue_.Take();
  if (!status->ok()) return nullptr;
  const Frame& frame = frames_[index];
  if (frame.spread()) frame.stream->Unpack(frame.begin, frame.end, Room(index));
  return &frame;
}

const Frame* FrameSender::Next() {
  return queue_.MayPost() && unposted() > 0 ? &frames_[queue_.posted()] : nullptr;
}

void FrameSender::Post() {
  const size_t index = queue_.posted();
  const Frame& frame = frames_[index];
  const std::byte* from = nullptr;
  if (frame.spread()) {
    frame.stream->Pack(frame.begin, frame.end, Room(index));
    from = Room(index);
  } else if (frame.bytes() > 0) {
    from = frame.stream->Input(frame.begin, frame.end);
  }
  queue_.Post(from, frame.bytes());
}

void FrameExchange::Receive(int peer, Frames frames) {
  receivers_.emplace_back(ReceiveQueue(&comm_, peer, sequence_), std::move(frames));
}

void FrameExchange::Send(int peer, Frames frames) {
  senders_.emplace_back(SendQueue(&comm_, peer, sequence_), std::move(frames));
}

Status FrameExchange::BorrowRoom() {
  std::vector<FrameFlow*> flows;
  for (FrameReceiver& receiver : receivers_) flows.push_back(&receiver);
  for (FrameSender& sender : senders_) flows.push_back(&sender);
  size_t bytes = 0;
  for (const FrameFlow* flow : flows) bytes += flow->RoomBytes();
  if (bytes == 0) return Status::Ok();
  HVD_RETURN_IF_ERROR(comm_.scratch->Borrow(bytes, &room_));
  std::byte* at = room_.data();
  for (FrameFlow* flow : flows) {
    flow->SetRoom(at);
    at += flow->RoomBytes();
  }
  return Status::Ok();
}

bool FrameExchange::PostReceives() {
  bool posted = false;
  for (FrameReceiver& receiver : receivers_) posted |= receiver.Post();
  return posted;
}

const Frame* FrameExchange::Take(Status* status) {
  const Frame* frame = nullptr;
  for (auto it = receivers_.begin(); it != receivers_.end() && frame == nullptr && status->ok();
       ++it) {
    frame = it->Take(status);
  }
  return frame;
}

bool FrameExchange::SendNext(const std::vector<bool>& here) {
  for (size_t i = 0; i < senders_.size(); ++i) {
    const size_t turn = (turn_ + i) % senders_.size();
    const Frame* frame = senders_[turn].Next();
    if (frame == nullptr || !here[frame->number]) continue;
    senders_[turn].Post();
    turn_ = turn + 1;
    return true;
  }
  return false;
}

bool FrameExchange::posted_all() const {
  return std::all_of(senders_.begin(), senders_.end(),
                     [](const FrameSender& sender) { return sender.unposted() == 0; });
}

bool FrameExchange::done() {
  return std::all_of(receivers_.begin(), receivers_.end(),
                     [](const FrameReceiver& receiver) { return receiver.done(); }) &&
         std::all_of(senders_.begin(), senders_.end(),
                     [](FrameSender& sender) { return sender.done(); });
}

}  // namespace hvd
