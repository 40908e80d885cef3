#include "runtime/liveness/blocked.h"

#include "transport/tree.h"

namespace hvd {

namespace {

bool HasChildren(int rank, int size) { return !Tree(rank, size).Children().empty(); }

}  // namespace

BlockedNews Combine(int rank, int size, int64_t own_us, const std::vector<BlockedPeer>& peers) {
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
    if (is_child && peer.departed && HasChildren(peer.rank, size)) news.below = 0;
  }
  news.all = knows_all || tree.is_root() ? news.below : told;
  return news;
}

}  // namespace hvd
