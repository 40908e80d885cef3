#include "runtime/peer/messages.h"

#include <algorithm>
#include <utility>

namespace hvd::peer {

namespace {

// Of one peer in one round, so that none starves another.
constexpr int kMostFrames = 64;

}  // namespace

Messages::Messages(GlobalRank rank, int size, Channels channels, Queue* queue, EventSink* events)
    : rank_(rank),
      channels_(std::move(channels)),
      completion_(queue, events),
      receives_(rank, &completion_) {
  for (Channel* channel : {channels_.window.get(), channels_.links.get()}) {
    if (channel != nullptr) all_.push_back(channel);
  }
  for (int other = 0; other < size; ++other) {
    const GlobalRank peer(other);
    Channel* const channel =
        channels_.local.Has(peer) ? channels_.window.get() : channels_.links.get();
    others_.push_back(peer == rank ? nullptr
                                   : std::make_unique<Other>(peer, channel, &completion_));
  }
}

void Messages::Add(const HandlePtr& handle) {
  looks_away_ = false;
  completion_.Begin(*handle);
  const PeerOperation& operation = *handle->entry.peer;
  if (!operation.sends) return receives_.Add(handle);
  if (operation.rank == rank_) return receives_.SendToSelf(handle);
  bool moved = false;
  Sends& sends = others_[operation.rank.index()]->sends;
  sends.Add(handle);
  sends.Advance(&moved);
}

Status Messages::Progress(bool* moved) {
  if (completion_.open() == 0 && !looks_away_) LookAway();
  if (completion_.open() == 0 && !receives_.arriving() && idle()) return Status::Ok();
  for (const auto& other : others_) {
    if (other == nullptr) continue;
    HVD_RETURN_IF_ERROR(HearFrom(other.get(), moved));
    other->sends.Advance(moved);
  }
  receives_.Advance(moved);
  for (Channel* channel : all_) {
    channel->Progress(moved);
    HVD_RETURN_IF_ERROR(channel->broken());
  }
  return Status::Ok();
}

// Nothing that is sent to this rank is looked at before it has another message itself. So nobody
// may wait for room that there is.
void Messages::LookAway() {
  looks_away_ = true;
  for (const auto& other : others_) {
    if (other != nullptr) other->peer.TellCredit();
  }
  bool moved = false;
  for (Channel* channel : all_) channel->Progress(&moved);
}

Status Messages::HearFrom(Other* other, bool* moved) {
  Frame frame;
  const std::byte* inlined;
  for (int i = 0; i < kMostFrames; ++i) {
    if (!other->peer.channel().Take(other->peer.rank(), &frame, &inlined, moved)) break;
    HVD_RETURN_IF_ERROR(Hear(other, frame, inlined));
  }
  other->peer.TellCreditInTime();
  return Status::Ok();
}

Status Messages::Hear(Other* other, const Frame& frame, const std::byte* inlined) {
  HVD_RETURN_IF_ERROR(other->peer.HearCredit(frame));
  switch (frame.kind) {
    case FrameKind::kWhole:
    case FrameKind::kFollowed:
    case FrameKind::kOffer:
      return receives_.Hear(&other->peer, frame, inlined);
    case FrameKind::kAccept:
    case FrameKind::kDecline:
      return other->sends.HearAnswer(frame);
    case FrameKind::kCredit:
      return Status::Ok();
    case FrameKind::kPayload:
    case FrameKind::kPassed:
      break;
  }
  return other->peer.Refused("a part of a payload where a message begins");
}

bool Messages::idle() const {
  return std::all_of(all_.begin(), all_.end(), [](const Channel* one) { return one->idle(); });
}

void Messages::Arm(bool sleeping) {
  for (Channel* channel : all_) channel->Arm(sleeping);
}

void Messages::Abandon() noexcept {
  for (const auto& other : others_) {
    if (other != nullptr) other->sends.Clear();
  }
  receives_.Clear();
  completion_.Clear();
}

}  // namespace hvd::peer
