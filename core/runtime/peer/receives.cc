#include "runtime/peer/receives.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/collective.h"

namespace hvd::peer {

namespace {

GlobalRank SourceOf(const Peer* peer, GlobalRank self) {
  return peer == nullptr ? self : peer->rank();
}

std::byte* OutputOf(const Handle& receive) { return receive.entry.buffers.front().output; }

size_t InputBytes(const Handle& handle) {
  return static_cast<size_t>(handle.entry.buffers.front().input_bytes);
}

}  // namespace

Envelope Receives::EnvelopeOf(const Handle& receive) {
  const Entry& entry = receive.entry;
  return {entry.peer->rank, entry.process_set, entry.peer->tag};
}

Envelope Receives::EnvelopeOf(const Message& message) const {
  return {SourceOf(message.peer, rank_), message.frame.set, message.frame.tag};
}

void Receives::Add(const HandlePtr& handle) {
  const std::optional<MessagePtr> message = matching_.Post(EnvelopeOf(*handle), handle);
  if (!message) return;
  Meet(*message, handle, (*message)->kept.data());
  // With no receive left open this rank would not come to it.
  if (Peer* const peer = (*message)->peer) peer->TellCreditInTime();
}

Status Receives::Hear(Peer* peer, const Frame& frame, const std::byte* inlined) {
  HVD_RETURN_IF_ERROR(peer->HearAnnouncement(frame));
  const bool whole = frame.kind == FrameKind::kWhole;
  const size_t unasked = Peer::UnaskedBytes(frame);
  const bool possible =
      frame.inlined == (whole ? frame.bytes : 0) && (whole || frame.bytes > 0) &&
      unasked <= (whole ? peer->channel().inline_bytes() : peer->channel().unasked_bytes());
  if (!possible) return peer->Refused("a message of a size that it cannot have");
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->frame = frame;
  if (std::optional<HandlePtr> receive = matching_.Arrive(EnvelopeOf(*message))) {
    Meet(message, *receive, inlined);
  } else {
    Keep(std::move(message), inlined);
  }
  return Status::Ok();
}

// Of a set that is no more nobody asks for anything; its sender may have left it later.
void Receives::Keep(MessagePtr message, const std::byte* inlined) {
  const Frame& frame = message->frame;
  const auto bytes = static_cast<size_t>(frame.bytes);
  if (frame.kind != FrameKind::kOffer) message->kept.resize(bytes);
  if (frame.kind == FrameKind::kWhole && bytes > 0)
    std::memcpy(message->kept.data(), inlined, bytes);
  if (frame.kind == FrameKind::kFollowed) ReceivePayload(message, message->kept.data());
  if (forgotten_.Has(frame.set)) return Drop(*message);
  const Envelope envelope = EnvelopeOf(*message);
  matching_.Keep(envelope, std::move(message));
}

void Receives::ReceivePayload(const MessagePtr& message, std::byte* memory) {
  arriving_.push_back(message);
  message->peer->channel().ReceivePayload(message->peer->rank(), message->frame.number, memory,
                                          static_cast<size_t>(message->frame.bytes),
                                          &message->transfer);
}

void Receives::Meet(const MessagePtr& message, const HandlePtr& receive, const std::byte* inlined) {
  if (message->peer == nullptr) return MeetOwn(message.get(), receive);
  Peer* const peer = message->peer;
  const Frame& frame = message->frame;
  peer->Matched(frame);
  message->receive = receive;
  receive->decided.store(true);
  completion_->Travels(*receive);
  const bool fits = CheckFits(*receive, peer->rank(), frame.bytes).ok();
  if (frame.kind == FrameKind::kWhole) return Finish(*message, inlined);
  if (frame.kind == FrameKind::kFollowed) {
    if (message->transfer.done) return Finish(*message, message->kept.data());
    if (!message->kept.empty()) return;  // it arrives there
    if (!fits) message->kept.resize(static_cast<size_t>(frame.bytes));
    return ReceivePayload(message, fits ? OutputOf(*receive) : message->kept.data());
  }
  if (fits) ReceivePayload(message, OutputOf(*receive));
  Answer(*message, fits ? FrameKind::kAccept : FrameKind::kDecline);
  if (!fits) Finish(*message, nullptr);
}

// Of an offer.
void Receives::Answer(const Message& message, FrameKind kind) {
  Frame answer;
  answer.kind = kind;
  answer.number = message.frame.number;
  message.peer->Send(answer);
}

// Of another rank, for which there is no receive and never will be: its send may still wait.
void Receives::Drop(const Message& message) {
  message.peer->Matched(message.frame);
  if (message.frame.kind == FrameKind::kOffer) return Answer(message, FrameKind::kDecline);
  message.peer->TellCreditInTime();
}

// `payload`: where it lies; null where it came straight into the memory of the receive.
void Receives::Finish(const Message& message, const std::byte* payload) {
  const HandlePtr& receive = message.receive;
  const GlobalRank source = SourceOf(message.peer, rank_);
  const Status fits = CheckFits(*receive, source, message.frame.bytes);
  if (fits.ok() && payload != nullptr && message.frame.bytes > 0)
    std::memcpy(OutputOf(*receive), payload, static_cast<size_t>(message.frame.bytes));
  const int64_t from = source.value();
  std::memcpy(receive->outputs.front().data.get(), &from, sizeof from);
  completion_->Complete(receive, fits);
}

Status Receives::CheckFits(const Handle& receive, GlobalRank source, uint64_t bytes) const {
  const TensorBuffer& buffer = receive.entry.buffers.front();
  if (static_cast<uint64_t>(buffer.output_bytes) == bytes) return Status::Ok();
  const negotiate::TensorMeta& tensor = receive.entry.request.tensors.front();
  return {Code::kMismatch, Name(source) + " has sent " + std::to_string(bytes) +
                               " bytes with tag " + std::to_string(receive.entry.peer->tag) +
                               ", but " + Name(rank_) + " receives them into a tensor of " +
                               std::to_string(buffer.output_bytes) + " bytes (" +
                               Name(tensor.dtype) + " " + ToString(tensor.shape) +
                               "). Send and receive tensors of one size."};
}

void Receives::SendToSelf(const HandlePtr& handle) {
  auto message = std::make_shared<Message>();
  message->frame.kind = FrameKind::kWhole;
  message->frame.set = handle->entry.process_set;
  message->frame.tag = handle->entry.peer->tag;
  message->frame.bytes = InputBytes(*handle);
  message->send = handle;
  if (std::optional<HandlePtr> receive = matching_.Arrive(EnvelopeOf(*message)))
    return MeetOwn(message.get(), *receive);
  const size_t bytes = InputBytes(*handle);
  if (bytes <= kMostUnaskedBytes - kept_for_self_) {
    kept_for_self_ += bytes;
    const std::byte* const input = handle->entry.buffers.front().input;
    message->kept.assign(input, input + bytes);
    message->send = nullptr;
  }
  const bool over = message->send == nullptr;
  const Envelope envelope = EnvelopeOf(*message);
  matching_.Keep(envelope, std::move(message));
  if (!over) return;
  completion_->Travels(*handle);
  completion_->Complete(handle, Status::Ok());
}

void Receives::MeetOwn(Message* message, const HandlePtr& receive) {
  message->receive = receive;
  completion_->Travels(*receive);
  if (message->send == nullptr) {
    kept_for_self_ -= message->kept.size();
    return Finish(*message, message->kept.data());
  }
  if (CheckFits(*receive, rank_, message->frame.bytes).ok()) {
    receive->decided.store(true);
    message->send->decided.store(true);
    completion_->Travels(*message->send);
    copying_.push_back({*message});
    return;
  }
  completion_->Complete(message->send, Status::Ok());
  Finish(*message, nullptr);
}

void Receives::Advance(bool* moved) {
  const auto over = [&](const MessagePtr& message) {
    if (!message->transfer.done) return false;
    *moved = true;
    if (message->receive == nullptr) return true;  // it is kept
    Finish(*message, message->kept.empty() ? nullptr : message->kept.data());
    return true;
  };
  arriving_.erase(std::remove_if(arriving_.begin(), arriving_.end(), over), arriving_.end());
  if (!copying_.empty()) CopyStep(moved);
}

void Receives::CopyStep(bool* moved) {
  Copy& copy = copying_.front();
  const TensorBuffer& from = copy.message.send->entry.buffers.front();
  const size_t bytes = std::min(kStepBytes, InputBytes(*copy.message.send) - copy.done);
  if (bytes > 0)
    std::memmove(OutputOf(*copy.message.receive) + copy.done, from.input + copy.done, bytes);
  copy.done += bytes;
  *moved = true;
  if (copy.done < InputBytes(*copy.message.send)) return;
  const Copy over = std::move(copy);
  copying_.pop_front();
  completion_->Complete(over.message.send, Status::Ok());
  Finish(over.message, nullptr);
}

void Receives::Forget(uint32_t set) {
  forgotten_.Add(set);
  for (const MessagePtr& message : matching_.Forget(set)) {
    if (message->peer != nullptr) {
      Drop(*message);
    } else if (message->send == nullptr) {
      kept_for_self_ -= message->kept.size();
    }
  }
}

void Receives::Clear() noexcept {
  matching_.Clear();
  arriving_.clear();
  copying_.clear();
}

}  // namespace hvd::peer
