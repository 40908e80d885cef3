#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/positions.h"
#include "base/rank.h"
#include "negotiate/batch.h"
#include "negotiate/lateness.h"
#include "negotiate/message.h"
#include "negotiate/response_cache.h"
#include "negotiate/schedule.h"

namespace hvd::negotiate {

struct SequencerOptions {
  Members members;                // for messages
  int64_t batch_bytes = 8 << 20;  // a batch closes when this much is ready
  Micros silence = 500;           // ... or when nothing became ready for so long
  Micros urgent_silence = 400;    // ... when some member is blocked on it
                                  // ... at once when every member is blocked on something in it
  Micros age = 5000;  // ... in any case when its first tensor has been ready for so long: ten
                      // pauses, so that only a steady trickle without one comes to this
  // Once so many requests have ids, new ones travel by name, and after as many of those no id means
  // anything any more: names that never come back must not fill the memory, nor keep others out.
  size_t cache_capacity = 1 << 16;
  LearningOptions learning;  // of schedules
};

// The one place of a process set that orders, checks and batches what all members are ready for.
// Pure: merged announcements and the time go in, numbered responses come out; no socket, thread or
// clock inside, so thousands of members can be simulated.
class Sequencer {
 public:
  // `cache`: where it gives ids.
  Sequencer(const SequencerOptions& options, ResponseCache* cache);
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;

  // What the merger above all members says, which has checked it. When all join, what is pending is
  // published with the end of the join.
  void Hear(AnnounceMessage message, Micros now);

  // When batches close from now on; see SequencerOptions.
  void SetLimits(Batch::Limits limits) { batch_.SetLimits(limits); }

  // The next response, if a batch is closed by `now`. Call until it returns nothing.
  std::optional<Response> Next(Micros now);

  // When Next may have something though nothing more is announced; -1 = never.
  Micros Deadline() const { return closed_.empty() ? batch_.Deadline() : now_; }

  // The members follow a schedule now, and count their announcements from 1 again after it. Only
  // when nothing is under way.
  void Restart() { batch_.Restart(); }

  // Whether ids are given to what does not come back: it is time to forget them.
  bool Crowded() const { return without_id_ > 0 && without_id_ >= cache_->capacity(); }
  // Likewise, and ids are given anew.
  void Forget();

  // `member` was the last to be ready for a batch of a schedule; see Lateness::Note.
  std::string* NoteLate(Position member, Micros since, Micros published) {
    return lateness_.Note(member, since, published);
  }

  // A line about a rank that the others wait for again and again, at most once a minute; otherwise
  // empty. Call every few seconds.
  std::string TakeStraggler(Micros now);

 private:
  void Ready(Announcement announcement, Micros now);
  void ReadyRun(const Announcement& run, Micros now);
  void ReadyOne(Announcement announcement, Micros now);
  void NoteLateness(const Announcement& announcement, Micros now);
  void Agree(Announcement* announcement, Decision* decision);
  bool Partial(const Announcement& announcement) const;
  std::string JoinedRoot(const Announcement& announcement) const;
  std::string Disagree(const Announcement& announcement) const;
  uint8_t NoticeIn(const Announcement& announcement) const;
  void GiveId(const Announcement& announcement, Decision* decision);
  int64_t ResultBytes(const Announcement& announcement, const Decision& decision) const;
  Request RequestOf(const Announcement& announcement) const {
    return announcement.id == kNoId ? announcement.request : cache_->At(announcement.id);
  }
  void Close();

  const Members members_;
  Positions joined_;
  Micros now_ = 0;
  uint64_t number_ = 0;  // of the latest response

  ResponseCache* const cache_;
  std::vector<int64_t> bytes_of_;  // by id: of one member's tensors
  size_t without_id_ = 0;          // operations for which there was none left

  Lateness lateness_;
  Batch batch_;
  std::vector<Decision> decisions_;  // of the open batch
  size_t usual_decisions_ = 0;
  std::deque<Response> closed_;
};

}  // namespace hvd::negotiate
