#pragma once

#include <vector>

// Who talks to whom.
namespace hvd {

// Binomial tree over positions relative to the root (the root is 0): a node's parent is its number without
// the lowest set bit.
inline int TreeParent(int node) { return node & (node - 1); }

// Children with the largest subtree first, because theirs is the longest way.
inline std::vector<int> TreeChildren(int node, int size) {
  std::vector<int> children;
  const int limit = node == 0 ? size : node & -node;
  int bit = 1;
  while (bit < limit) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (node + bit < size) children.push_back(node + bit);
  }
  return children;
}

// The block that position `rank` receives from its predecessor in step `step` of a ring; it sends in step s
// what it received in step s-1, and its own block first.
inline int RingBlock(int rank, int step, int size) { return ((rank - 1 - step) % size + size) % size; }

// In a tree of combinations, rank `into` goes on with the combination of its own and rank `from`'s.
struct TreePair {
  int into;
  int from;
};

// The levels of Adasum's tree (see adasum.h); rank 0 has the result.
inline std::vector<std::vector<TreePair>> AdasumTree(int size) {
  int power = 1;
  while (power * 2 <= size) power *= 2;
  std::vector<std::vector<TreePair>> levels;
  if (power < size) levels.emplace_back();
  for (int rank = power; rank < size; ++rank) levels.back().push_back({rank - power, rank});
  for (int distance = 1; distance < power; distance *= 2) {
    levels.emplace_back();
    for (int rank = 0; rank < power; rank += 2 * distance) levels.back().push_back({rank, rank + distance});
  }
  return levels;
}

}  // namespace hvd
