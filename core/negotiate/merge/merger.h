#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/positions.h"
#include "base/rank.h"
#include "negotiate/merge/tallies.h"
#include "negotiate/merge/urgency.h"
#include "negotiate/message.h"
#include "negotiate/response_cache.h"

namespace hvd::negotiate {

struct MergerOptions {
  // Who announces to a node of the tree: a member, or a node further down.
  struct Child {
    GlobalRank rank;  // where it runs
    Positions below;  // the member; or all whose announcements it merges, itself among them
  };
  std::vector<Child> children;  // one after another in the numbers of their members, or not
  size_t cache_capacity = ResponseCache::kMostIds;
  Micros report_after = 1000000;  // what waits for so long is told to the parent; 0: nothing is
};

// A node of the tree of a process set: makes one stream of announcements out of those of its
// children, which are members and other mergers. An operation is announced when every child has
// announced it or joined. The node hears, on their way down, the responses to what it has
// announced. Pure as the sequencer is; what it keeps grows with its children, not with the set.
class Merger {
 public:
  explicit Merger(MergerOptions options);
  Merger(const Merger&) = delete;
  Merger& operator=(const Merger&) = delete;

  // An error (kAborted) concerns that child's bytes (unknown id, ordinal out of order, an
  // announcement after joining): the link is corrupt or the peer malicious, and the merger is of no
  // more use.
  Status Announce(size_t child, AnnounceMessage message, Micros now);

  // What goes to the parent now; call until there is nothing.
  bool Take(AnnounceMessage* merged);

  // A response goes down to the children. An error means that it is no answer to what went up.
  Status Pass(const Response& response);

  // From here on the set follows a schedule; Pass sees to it by itself. Whatever was announced and
  // has not passed is void, also if it comes later.
  void Follow();
  // From here on no id means anything; likewise.
  void Forget();
  // The schedule is left after so many unnamed operations. Until then Announce hears only who waits
  // for the others.
  void Resume(uint64_t unnamed);
  // Who is ready for a batch and waits for the others, of the latest of which somebody has told.
  struct Waiters {
    uint64_t batch = 0;
    Positions members;
    Micros since = 0;  // the first of them told
  };
  const Waiters& waiters() const { return waiters_; }

  // Puts into what Take gives what has waited for long, when it is time to.
  void Look(Micros now);
  // When Look has something to do; -1 = never.
  Micros Deadline() const;

  // What somebody below has announced and others have not. Ascending by the first announcement.
  std::vector<Waiting> Unready(Micros now) const;

  size_t children() const { return children_.size(); }
  const Positions& below() const { return below_; }
  // Whether nobody has announced what has not passed, or joined.
  bool idle() const { return tallies_.in_flight() == 0 && joined_.empty(); }
  // The first unnamed operation that is not decided.
  uint64_t unnamed_base() const { return tallies_.unnamed_base(); }
  // Who has joined, and waits for the others to join.
  const Positions& joined() const { return joined_; }
  const Positions& below(size_t child) const { return children_[child].below; }

  // What an announcement that was not taken in yet is about, by operation; without a name when it
  // is unnamed, or of an unknown id. A run ends with the last known id.
  std::vector<Request> RequestsIn(const Announcement& announcement) const;
  // How many ids have passed: a sound child announces no more operations by id in one message.
  size_t known() const { return name_of_id_.size(); }

  // The ids that have passed; on the root the sequencer gives them here.
  ResponseCache* cache() { return &cache_; }

 private:
  struct Child {
    GlobalRank rank;
    Positions below;
    std::vector<int> places;  // by run of `below`: where it begins in the merger's own
    Positions joined;
    bool all_joined = false;
    uint64_t ordinal = 0;  // of its latest unnamed operation, since all joined if they ever did
    std::vector<Waiting> waiting;  // what it has told last,
    Micros told = 0;               // and when
    bool IsMember() const { return below.size() == 1; }
  };

  struct Late {
    Position last;
    Micros waited = 0;
  };

  // checks.cc: whether these can be the bytes of a sound child.
  Status Check(size_t child, const AnnounceMessage& message) const;
  Status Check(size_t child, Announcement* announcement) const;
  Status CheckRun(size_t child, const Announcement& run) const;
  Status CheckLateness(size_t child, const Announcement& announcement) const;
  Status CheckDescription(size_t child, uint64_t ordinal, uint32_t* id,
                          const Request& request) const;
  Status CheckVariants(size_t child, Announcement* announcement) const;
  Status CheckSizes(size_t child, const Announcement& announcement) const;
  Status Corrupt(size_t child, const std::string& what) const;
  Status Twice(size_t child, const Tally& tally) const;

  Status AnnounceOne(size_t child, Announcement* announcement, Micros now);
  Status AnnounceRun(size_t child, const Announcement& run, Micros now);
  void Note(size_t child, const Announcement& announcement, Tally* tally, Micros now);
  Tally* TallyOf(const Announcement& announcement);
  Tally* TallyOf(uint32_t name, uint64_t ordinal);
  void Describe(Tally* tally, size_t child, Announcement* announcement);
  Tally::Details* DetailsOf(Tally* tally);
  size_t VariantOf(Tally::Details* details, uint32_t id, Request* request) const;
  void List(Tally* tally);
  void AddSizes(Tally* tally, const Child& child, const Shape& sizes);
  Request RequestOf(uint32_t id, const Request& request) const {
    return id == kNoId ? request : cache_.At(id);
  }
  Late LateIn(size_t child, const Announcement& announcement, Micros others) const;
  void Complete(Tally* tally, const Late& late);

  // joins.cc
  void Joined(size_t child, const Positions& joined);
  void Join(size_t child, Position last);
  Status EndJoin();

  // following.cc
  Status NoteWaiters(size_t child, const AnnounceMessage& message, Micros now);
  bool TakeWaiters(AnnounceMessage* merged);

  // responses.cc
  Status PassOne(const Decision& decision);
  Status PassRun(const Decision& run);
  void End(Tally* tally);
  Tally* TallyOf(const Decision& decision) const;
  Status Learn(const Decision& decision, const Tally* tally);

  // waiting.cc
  Positions ReadyOf(const Tally& tally) const;
  void TakeOver(Child* child, Tally* tally, Micros now) const;
  void ForgetWaiting(const Tally& tally, std::vector<Waiting>* waiting) const;

  MergerOptions options_;
  std::vector<Child> children_;
  Positions below_;
  Positions joined_;
  uint32_t all_joined_ = 0;  // so many children
  ResponseCache cache_;
  std::vector<uint32_t> name_of_id_;  // kNoId: unnamed
  Tallies tallies_;
  Urgency urgency_;
  std::deque<AnnounceMessage> merged_;  // for the parent; the last one is being written
  uint64_t told_some_ = 0;              // what it was told of urgency last
  uint64_t told_all_ = 0;
  Micros next_look_ = -1;
  std::vector<Waiting> told_;  // what the parent knows to wait
  uint64_t epoch_ = 0;         // see AnnounceMessage
  Waiters waiters_;
  bool tells_waiters_ = false;
};

}  // namespace hvd::negotiate
