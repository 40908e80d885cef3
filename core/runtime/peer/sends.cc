#include "runtime/peer/sends.h"

#include <algorithm>
#include <utility>

namespace hvd::peer {

void Sends::Advance(bool* moved) {
  for (; !notes_.empty() && peer_->MayAnnounceNote(); notes_.pop_front()) {
    Announce(notes_.front());
    *moved = true;
  }
  for (; !waiting_.empty() && peer_->MayAnnounce(); waiting_.pop_front()) {
    Announce(waiting_.front());
    *moved = true;
  }
  const auto over = [&](const std::unique_ptr<Outgoing>& outgoing) {
    if (!outgoing->transfer.done) return false;
    completion_->Complete(outgoing->handle, Status::Ok());
    *moved = true;
    return true;
  };
  sending_.erase(std::remove_if(sending_.begin(), sending_.end(), over), sending_.end());
}

// Small ones leave unasked, as long as the peer has not too many of them.
void Sends::Announce(const HandlePtr& handle) {
  const Entry& entry = handle->entry;
  const TensorBuffer& buffer = entry.buffers.front();
  const auto bytes = static_cast<size_t>(buffer.input_bytes);
  const bool unasked = IsNote(entry.peer->tag) ||
                       (bytes <= peer_->channel().unasked_bytes() && peer_->MaySendUnasked(bytes));
  const bool inlined = unasked && bytes <= peer_->channel().inline_bytes();
  Frame frame;
  frame.kind = inlined ? FrameKind::kWhole : unasked ? FrameKind::kFollowed : FrameKind::kOffer;
  frame.set = entry.process_set;
  frame.tag = entry.peer->tag;
  frame.bytes = bytes;
  frame.inlined = inlined ? static_cast<uint32_t>(bytes) : 0;
  frame.number = peer_->Announce(frame);
  peer_->Send(frame, buffer.input);
  if (unasked) completion_->Travels(*handle);
  if (inlined) return completion_->Complete(handle, Status::Ok());
  auto outgoing = std::make_unique<Outgoing>(Outgoing{handle, frame.number, {}});
  if (unasked) return SendPayload(std::move(outgoing));
  offered_[frame.number] = std::move(outgoing);
}

void Sends::SendPayload(std::unique_ptr<Outgoing> outgoing) {
  const TensorBuffer& buffer = outgoing->handle->entry.buffers.front();
  Transfer* const transfer = &outgoing->transfer;
  const uint64_t number = outgoing->number;
  outgoing->handle->decided.store(true);
  sending_.push_back(std::move(outgoing));
  peer_->channel().SendPayload(peer_->rank(), number, buffer.input,
                               static_cast<size_t>(buffer.input_bytes), transfer);
}

Status Sends::HearAnswer(const Frame& frame) {
  const auto found = offered_.find(frame.number);
  if (found == offered_.end()) return peer_->Refused("an answer to what was not offered");
  std::unique_ptr<Outgoing> outgoing = std::move(found->second);
  offered_.erase(found);
  if (frame.kind == FrameKind::kAccept) {
    completion_->Travels(*outgoing->handle);
    SendPayload(std::move(outgoing));
  } else {
    completion_->Complete(outgoing->handle, Status::Ok());
  }
  return Status::Ok();
}

void Sends::Clear() noexcept {
  notes_.clear();
  waiting_.clear();
  offered_.clear();
  sending_.clear();
}

}  // namespace hvd::peer
