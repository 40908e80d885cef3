#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
  bool cache = true;
  // Once so many requests have ids, new ones travel by name: names that never come back must not
  // fill the memory.
  size_t cache_capacity = 1 << 16;
  LearningOptions learning;  // of schedules
};

// A tensor that some members have announced and others have not.
struct Unready {
  std::string name;
  OpKind kind;
  Micros since;
  std::vector<GlobalRank> ready;
  std::vector<GlobalRank> absent;
};

// The one place of a process set that orders, checks and batches. Pure: announcements and the time
// go in, numbered responses come out; no socket, thread or clock inside, so thousands of members
// can be simulated.
class Sequencer {
 public:
  explicit Sequencer(SequencerOptions options);
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;

  // An operation is ready when every member has announced it or joined.
  // When the last member joins, all that is pending is ready; it is published with the end of the
  // join. An error (kAborted) concerns that member's bytes (unknown id, ordinal out of order, an
  // announcement after joining): the link is corrupt or the peer malicious, and the sequencer is of
  // no more use.
  Status Announce(Position member, AnnounceMessage message, Micros now);

  // When batches close from now on; see SequencerOptions.
  void SetLimits(Batch::Limits limits) { batch_.SetLimits(limits); }

  // The next response, if a batch is closed by `now`. Call until it returns nothing.
  std::optional<Response> Next(Micros now);

  // The members have left the latest schedule after so many batches, with so many unnamed
  // operations in them. Until then nothing that they announce after it is taken in.
  void Resume(uint64_t batches, uint64_t unnamed);

  // The first unnamed operation that it has not decided.
  uint64_t unnamed_base() const { return unnamed_base_; }

  // Whether schedules are made.
  void Learn(bool learns) { learns_ = learns; }

  // `member` was the last to vote at a gate of a schedule; see Lateness::Note.
  std::string* NoteLate(Position member, Micros since, Micros voted) {
    return lateness_.Note(member.index(), since, voted);
  }

  // What the members wait for at a gate of a schedule, for reports; nothing when they do not.
  void SetGated(std::optional<Unready> gated) { gated_ = std::move(gated); }

  // When Next may have something though nothing more is announced; -1 = never.
  Micros Deadline() const;

  // Whether this member has joined and waits for the others to join.
  bool joined(Position member) const { return members_[member.index()].joined; }

  // What an announcement that was not taken in yet is about; without a name when it is unnamed, or
  // of an unknown id.
  const Request& RequestIn(const Announcement& announcement) const;

  // A line about a rank that the others wait for again and again, at most once a minute; otherwise
  // empty. Call every few seconds.
  std::string TakeStraggler(Micros now);

  // Oldest first. Who has joined is not absent.
  std::vector<Unready> Pending() const;

 private:
  struct Member {
    uint64_t announced = 0;
    uint64_t ordinal =
        0;  // of its latest unnamed operation, since all members joined if they ever did
    bool joined = false;
  };
  struct Name {
    const std::string* text = nullptr;  // key of name_of_
    Tally* tally = nullptr;             // while in flight
    bool cached = false;                // some id has it, so it stays
  };
  struct Known {    // what an id means, beside its request
    uint32_t name;  // kNoId: unnamed
    int64_t bytes;  // of one member's tensors
  };

  GlobalRank RankOf(size_t member) const {
    return options_.members[Position(static_cast<int>(member))];
  }
  Status AnnounceOne(size_t member, Announcement* announcement, Micros now);
  Status Check(size_t member, Announcement* announcement) const;
  Status Corrupt(size_t member, const std::string& what) const;
  Tally* TallyOf(const Announcement& announcement);
  Tally* NamedTally(uint32_t name);
  Tally* UnnamedTally(uint64_t ordinal);
  Tally* NewTally();
  uint32_t NameOf(const std::string& text);
  size_t VariantOf(Tally* tally, Announcement* announcement);
  const Request& RequestOf(const Tally::Variant& variant) const;
  std::string NameOf(const Tally& tally) const;

  // join.cc
  void Join(size_t member, Micros now);
  void EndJoin(size_t last);
  bool Partial(const Tally& tally) const;
  std::string JoinedRoot(const Tally& tally) const;

  // decide.cc
  void Ready(Tally* tally, Micros now);
  void Agree(Tally* tally, Decision* decision);
  std::string Disagree(const Tally& tally) const;
  void GiveId(Tally* tally, Decision* decision);
  void GatherSizes(const Tally& tally, Decision* decision) const;
  int64_t ResultBytes(const Tally& tally, const Decision& decision) const;
  void Close();
  void NoteStep();
  bool Quiet() const { return joined_ == 0 && free_tallies_.size() == tallies_.size(); }
  void Release(Tally* tally);

  const SequencerOptions options_;
  std::vector<Member> members_;
  size_t joined_ = 0;  // so many members
  Micros now_ = 0;
  uint64_t number_ = 0;  // of the latest response

  ResponseCache cache_;
  std::vector<Known> known_;  // by id
  std::unordered_map<std::string, uint32_t> name_of_;
  std::vector<Name> names_;
  std::vector<uint32_t> free_names_;
  std::deque<Tally*> unnamed_;  // by ordinal from unnamed_base_; nullptr: decided
  uint64_t unnamed_base_ = 1;
  std::deque<Tally> tallies_;  // all, in flight or free
  std::vector<Tally*> free_tallies_;

  Lateness lateness_;
  Batch batch_;
  std::vector<Tally*> decided_;      // of the open batch,
  std::vector<Decision> decisions_;  // in the same order
  size_t usual_decisions_ = 0;
  std::deque<Response> closed_;

  ScheduleLearner learner_;
  bool learns_ = true;
  uint64_t epoch_ = 0;  // schedules made
  std::optional<Unready> gated_;
};

// stall.cc

// What has waited for at least `older_than`, which ranks are absent, and what those wait for
// instead. Empty when nothing has; at most 12 lines.
std::string StallReport(const Sequencer& sequencer, Micros now, Micros older_than);

// The ranks that are absent from everything that has waited so long; empty when none is.
std::vector<GlobalRank> AbsentFromAll(const Sequencer& sequencer, Micros now, Micros older_than);

}  // namespace hvd::negotiate
