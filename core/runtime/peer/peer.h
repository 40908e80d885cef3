#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/peer/channel.h"
#include "runtime/peer/frame.h"

namespace hvd::peer {

// What one rank may have under way to another that no receive has met yet. It bounds what the
// other must remember, whatever the first one's program does; what is beyond waits at its sender.
constexpr uint64_t kMostUnmatched = 4096;        // messages
constexpr uint64_t kMostUnaskedBytes = 1 << 20;  // of payloads that were not asked for

// Another rank, and what the two owe each other.
class Peer {
 public:
  Peer(GlobalRank rank, Channel* channel) : rank_(rank), channel_(channel) {}

  GlobalRank rank() const { return rank_; }
  Channel& channel() const { return *channel_; }

  void Send(Frame frame, const std::byte* inlined = nullptr) {
    frame.matched = matched_told_ = matched_;
    frame.freed = freed_told_ = freed_;
    channel_->Send(rank_, frame, inlined);
  }

  // This rank as the sender.
  bool MayAnnounce() const { return sent_ - matched_there_ < kMostUnmatched; }
  bool MaySendUnasked(size_t bytes) const {
    return bytes <= kMostUnaskedBytes - (unasked_ - freed_there_);
  }
  uint64_t Announce(size_t unasked_bytes) {
    unasked_ += unasked_bytes;
    return ++sent_;
  }
  Status HearCredit(const Frame& frame) {
    const bool possible = frame.matched <= sent_ && frame.matched >= matched_there_ &&
                          frame.freed <= unasked_ && frame.freed >= freed_there_;
    if (!possible) return Refused("credit that nobody can give");
    matched_there_ = frame.matched;
    freed_there_ = frame.freed;
    return Status::Ok();
  }

  // This rank as the receiver: of a frame that announces a message.
  Status HearAnnouncement(const Frame& frame) {
    const size_t unasked = UnaskedBytes(frame);
    const bool in_order = frame.number == received_ + 1;
    const bool bounded =
        received_ - matched_ < kMostUnmatched && unasked <= kMostUnaskedBytes - (kept_ - freed_);
    if (!in_order || !bounded) return Refused("more than it may, or out of order");
    ++received_;
    kept_ += unasked;
    return Status::Ok();
  }
  void Matched(const Frame& frame) {
    ++matched_;
    freed_ += UnaskedBytes(frame);
  }
  // Should nothing else be sent: once much has changed, and at once where the peer may wait for it,
  // as it has announced all that it may by what it was told.
  void TellCreditInTime() {
    const bool peer_may_wait = received_ - matched_told_ >= kMostUnmatched;
    const bool much = matched_ - matched_told_ >= kMostUnmatched / 2 ||
                      freed_ - freed_told_ >= kMostUnaskedBytes / 2;
    if (much || (peer_may_wait && matched_ != matched_told_)) Send(Frame());
  }

  // Before this rank looks away: the peer may come to wait for it meanwhile.
  void TellCredit() {
    if (matched_ != matched_told_ || freed_ != freed_told_) Send(Frame());
  }

  static size_t UnaskedBytes(const Frame& frame) {
    return frame.kind == FrameKind::kOffer ? 0 : static_cast<size_t>(frame.bytes);
  }

  Status Refused(const std::string& what) const {
    return Status::Aborted(Name(rank_) + " has sent " + what);
  }

 private:
  const GlobalRank rank_;
  Channel* const channel_;

  // Of the messages to the peer, and what it has said of them.
  uint64_t sent_ = 0;
  uint64_t unasked_ = 0;  // bytes
  uint64_t matched_there_ = 0;
  uint64_t freed_there_ = 0;

  // Of those from it, and what it was told.
  uint64_t received_ = 0;
  uint64_t kept_ = 0;  // bytes
  uint64_t matched_ = 0;
  uint64_t freed_ = 0;
  uint64_t matched_told_ = 0;
  uint64_t freed_told_ = 0;
};

}  // namespace hvd::peer
