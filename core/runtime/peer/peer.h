#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/operation/entry.h"
#include "runtime/peer/channel.h"
#include "runtime/peer/frame.h"

namespace hvd::peer {

// What one rank may have under way to another that no receive has met yet. It bounds what the
// other must remember, whatever the first one's program does; what is beyond waits at its sender.
constexpr uint64_t kMostUnmatched = 4096;        // messages
constexpr uint64_t kMostUnaskedBytes = 1 << 20;  // of payloads that were not asked for
// Likewise of the engine's own notes, beside these: no process set could be made by its members
// once one of them has sent all that it may. Always whole, and so many bytes at most.
constexpr uint32_t kMostNotes = 1024;

// Another rank, and what the two owe each other.
class Peer {
 public:
  Peer(GlobalRank rank, Channel* channel) : rank_(rank), channel_(channel) {}

  GlobalRank rank() const { return rank_; }
  Channel& channel() const { return *channel_; }

  void Send(Frame frame, const std::byte* inlined = nullptr) {
    frame.matched = matched_told_ = matched_;
    frame.freed = freed_told_ = freed_;
    frame.notes = notes_told_ = notes_matched_;
    channel_->Send(rank_, frame, inlined);
  }

  // This rank as the sender.
  bool MayAnnounce() const { return sent_ - matched_there_ < kMostUnmatched; }
  bool MayAnnounceNote() const { return notes_sent_ - notes_there_ < kMostNotes; }
  bool MaySendUnasked(size_t bytes) const {
    return bytes <= kMostUnaskedBytes - (unasked_ - freed_there_);
  }
  // The number of the message.
  uint64_t Announce(const Frame& frame) {
    if (IsNote(frame.tag)) {
      ++notes_sent_;
    } else {
      ++sent_;
      unasked_ += UnaskedBytes(frame);
    }
    return ++announced_;
  }
  Status HearCredit(const Frame& frame) {
    const bool possible = frame.matched <= sent_ && frame.matched >= matched_there_ &&
                          frame.freed <= unasked_ && frame.freed >= freed_there_ &&
                          frame.notes - notes_there_ <= notes_sent_ - notes_there_;
    if (!possible) return Refused("credit that nobody can give");
    matched_there_ = frame.matched;
    freed_there_ = frame.freed;
    notes_there_ = frame.notes;
    return Status::Ok();
  }

  // This rank as the receiver: of a frame that announces a message.
  Status HearAnnouncement(const Frame& frame) {
    const bool note = IsNote(frame.tag);
    const bool in_order = frame.number == heard_ + 1;
    if (!in_order || !(note ? HasRoomForNote(frame) : HasRoom(frame)))
      return Refused("more than it may, or out of order");
    ++heard_;
    if (note) {
      ++notes_received_;
    } else {
      ++received_;
      kept_ += UnaskedBytes(frame);
    }
    return Status::Ok();
  }
  void Matched(const Frame& frame) {
    if (IsNote(frame.tag)) {
      ++notes_matched_;
      return;
    }
    ++matched_;
    freed_ += UnaskedBytes(frame);
  }
  // Should nothing else be sent: once much has changed, and at once where the peer may wait for it,
  // as it has announced all that it may by what it was told.
  void TellCreditInTime() {
    const bool waits = received_ - matched_told_ >= kMostUnmatched && matched_ != matched_told_;
    const bool note_waits =
        notes_received_ - notes_told_ >= kMostNotes && notes_matched_ != notes_told_;
    const bool much = matched_ - matched_told_ >= kMostUnmatched / 2 ||
                      freed_ - freed_told_ >= kMostUnaskedBytes / 2 ||
                      notes_matched_ - notes_told_ >= kMostNotes / 2;
    if (much || waits || note_waits) Send(Frame());
  }

  // Before this rank looks away: the peer may come to wait for it meanwhile.
  void TellCredit() {
    const bool told =
        matched_ == matched_told_ && freed_ == freed_told_ && notes_matched_ == notes_told_;
    if (!told) Send(Frame());
  }

  static size_t UnaskedBytes(const Frame& frame) {
    return frame.kind == FrameKind::kOffer ? 0 : static_cast<size_t>(frame.bytes);
  }

  Status Refused(const std::string& what) const {
    return Status::Aborted(Name(rank_) + " has sent " + what);
  }

 private:
  bool HasRoom(const Frame& frame) const {
    return received_ - matched_ < kMostUnmatched &&
           UnaskedBytes(frame) <= kMostUnaskedBytes - (kept_ - freed_);
  }
  bool HasRoomForNote(const Frame& frame) const {
    return notes_received_ - notes_matched_ < kMostNotes && frame.kind == FrameKind::kWhole &&
           frame.bytes <= kMostNoteBytes;
  }

  const GlobalRank rank_;
  Channel* const channel_;

  // Of what goes to the peer, and what it has said of that.
  uint64_t announced_ = 0;  // messages and notes
  uint64_t sent_ = 0;       // messages
  uint64_t unasked_ = 0;    // bytes of these
  uint64_t matched_there_ = 0;
  uint64_t freed_there_ = 0;
  uint32_t notes_sent_ = 0;
  uint32_t notes_there_ = 0;

  // Of what comes from it, and what it was told.
  uint64_t heard_ = 0;
  uint64_t received_ = 0;
  uint64_t kept_ = 0;
  uint64_t matched_ = 0;
  uint64_t freed_ = 0;
  uint64_t matched_told_ = 0;
  uint64_t freed_told_ = 0;
  uint32_t notes_received_ = 0;
  uint32_t notes_matched_ = 0;
  uint32_t notes_told_ = 0;
};

}  // namespace hvd::peer
