#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/tree.h"

namespace hvd {

// Since when this rank has done nothing but wait in the library: some thread of it waits, none has
// submitted anything or come back from a wait, none that could go on was there when the watcher
// looked (ProgramThreads), and no operation was under way. A deadlock is proved when this holds for
// every rank of the job, for then nobody is left who could submit what is missing.
class Blocked {
 public:
  // Around a wait that has lasted for a while already; cheap ones need not be told.
  void Enter(int64_t now_us) {
    Touch(now_us);  // first: whoever sees that this rank waits must see since when
    waiting_.fetch_add(1);
  }
  void Leave(int64_t now_us) {
    Touch(now_us);
    waiting_.fetch_sub(1);
  }
  void Touch(int64_t now_us) { quiet_since_us_.store(now_us, std::memory_order_relaxed); }

  bool any() const { return waiting_.load() > 0; }
  int64_t Micros(int64_t now_us) const {
    return waiting_.load() == 0 ? 0 : std::max<int64_t>(0, now_us - quiet_since_us_.load());
  }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<int64_t> quiet_since_us_{0};
};

// What a rank tells of being blocked, in microseconds; each a lower bound.
struct BlockedNews {
  int64_t own = 0;    // the rank itself
  int64_t below = 0;  // it and all ranks below it in the tree of ranks (base/tree.h)
  int64_t all = 0;    // everybody, as far as it knows
};

// What one rank knows of another that it has a link to.
struct BlockedPeer {
  int rank;
  bool departed;  // which counts as blocked
  BlockedNews news;
};

// What a rank tells in turn. With a link to everybody it knows all itself. Otherwise the tree says
// it: the least goes up to the root and from there down, and never round in a circle, where it
// would keep itself alive. Beyond a rank that has left and had others below it nothing is known:
// then nobody counts as blocked.
inline BlockedNews Combine(int rank, int size, int64_t own_us,
                           const std::vector<BlockedPeer>& peers) {
  const bool knows_all = static_cast<int>(peers.size()) == size - 1;
  const Tree tree(rank, size);
  BlockedNews news{own_us, own_us, 0};
  int64_t told = 0;
  for (const BlockedPeer& peer : peers) {
    const bool is_child = tree.IsParentOf(peer.rank);
    const bool is_parent = rank > 0 && peer.rank == tree.parent();
    if (knows_all && !peer.departed) news.below = std::min(news.below, peer.news.own);
    if (knows_all || !(is_child || is_parent)) continue;
    if (is_parent && !peer.departed) told = peer.news.all;
    if (is_child && !peer.departed) news.below = std::min(news.below, peer.news.below);
    if (is_child && peer.departed && !Tree(peer.rank, size).Children().empty()) news.below = 0;
  }
  news.all = knows_all || tree.is_root() ? news.below : told;
  return news;
}

}  // namespace hvd
