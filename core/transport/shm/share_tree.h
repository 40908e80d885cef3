#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "base/tree.h"
#include "base/waker.h"
#include "transport/shm/message.h"

namespace hvd::shm {

// What went wrong first in one exchange, as far as this rank knows, and on which rank.
struct Fault {
  Status status;
  Outcome outcome = Outcome::kDone;
  GlobalRank rank;

  // Later ones follow from the first.
  void Keep(Status next, Outcome kind, GlobalRank where) {
    if (next.ok() || !status.ok()) return;
    status = std::move(next);
    outcome = kind;
    rank = where;
  }
};

// What follows one after the other when something is shared, and which way it travels.
enum class Stage { kWakersUp, kDown, kVerdictUp, kVerdictDown };

// Until when a rank waits for its neighbour in one stage: the last quarter of the time before
// `deadline` is divided among all stages and levels of the tree. Whoever is next to a rank that is
// missing gives up first, so that those behind it hear from it which rank that is, and blame no
// other.
inline Deadline GiveUpAt(Stage stage, const Tree& tree, int64_t now, Deadline deadline) {
  constexpr int kStages = 4;
  const int levels = tree.levels();
  const bool up = stage == Stage::kWakersUp || stage == Stage::kVerdictUp;
  const int later = up ? tree.depth() : levels - 1 - tree.depth();
  const int steps = (kStages - 1 - static_cast<int>(stage)) * levels + later;
  return deadline - (deadline - now) / 4 * steps / (kStages * levels);
}

// The way by which descriptors reach all ranks of a host: a tree of AF_UNIX links, so that a rank
// needs few of these however many ranks there are. Every exchange takes all ranks of the tree,
// which call for the same ones in the same order, that of ascending ids of sets; it blocks until
// its deadline at most. One that failed leaves the tree in step.
class ShareTree {
 public:
  // `rank` is the caller's own; `sockets` holds, by place in `ranks`, a connected AF_UNIX stream
  // socket for the caller's parent and children, and stays the caller's. Exchanges the wakers:
  // every rank has a duplicate of every other's from then on, for all windows. After an error the
  // tree is of no use but to tell who failed.
  static Status Make(uint64_t generation, Members ranks, GlobalRank rank, std::vector<int> sockets,
                     const Waker& waker, Deadline deadline, std::unique_ptr<ShareTree>* out);

  const Tree& tree() const { return tree_; }
  GlobalRank rank() const { return RankAt(tree_.position()); }
  uint64_t generation() const { return generation_; }
  // Of a rank of the tree; null for the own one. Ranks keep them beyond the life of the tree.
  std::shared_ptr<const Descriptor> WakerOf(GlobalRank rank) const {
    return wakers_[ranks_.Find(rank).index()];
  }

  // Takes the root's memfd and what identifies it to everybody. A fault of the root goes along in
  // its place.
  void Spread(Identity* identity, Descriptor* memfd, Deadline deadline, Fault* fault);

  // Everybody's success or, everywhere, an error: the own one or another rank's.
  Status Agree(const Identity& identity, Fault fault, Deadline deadline);
  // On which rank the last exchange failed, as far as this one knows; unknown: on none.
  GlobalRank failed_rank() const { return failed_rank_; }

 private:
  ShareTree(uint64_t generation, Members ranks, std::vector<int> sockets, int position);

  Status ShareWakers(int waker, Deadline deadline);
  void CollectWakers(int from, int first, int end, Deadline limit, Fault* fault);
  void SendWakers(int to, int first, int end, Deadline limit, Fault* fault);
  Status Tell(int to, Message::Kind kind, const Identity& identity, const Fault& fault,
              const std::vector<int>& descriptors, Deadline limit);
  Status Hear(int from, Message::Kind kind, const Identity& about, Deadline limit, Message* message,
              std::vector<Descriptor>* descriptors, Fault* fault);
  // Places in the tree are no positions in a set: plain numbers, of this class alone.
  GlobalRank RankAt(int place) const { return ranks_.ranks()[static_cast<size_t>(place)]; }
  std::string Who(int place) const { return Name(RankAt(place)); }

  const uint64_t generation_;
  const Members ranks_;
  const std::vector<int> sockets_;  // by place
  const Tree tree_;
  GlobalRank failed_rank_;
  std::vector<std::shared_ptr<const Descriptor>> wakers_;  // by place
};

}  // namespace hvd::shm
