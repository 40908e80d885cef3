#pragma once

#include <algorithm>
#include <vector>

namespace hvd {

// A binomial tree over positions 0 .. size-1 with its root at 0. A subtree is a run of positions
// that begins with its own root, and neighbours are a power of two apart.
class Tree {
 public:
  Tree(int position, int size) : position_(position), size_(size) {}

  int position() const { return position_; }
  int size() const { return size_; }
  bool is_root() const { return position_ == 0; }
  int parent() const { return ParentOf(position_); }  // not of the root
  bool IsParentOf(int other) const { return other > 0 && ParentOf(other) == position_; }

  // How far it is to the root, and how many such distances there are at most.
  int depth() const { return __builtin_popcount(static_cast<unsigned>(position_)); }
  int levels() const { return 33 - __builtin_clz(static_cast<unsigned>(size_)); }

  // One behind the last position of the subtree below `root`.
  int End(int root) const { return root == 0 ? size_ : std::min(size_, root + (root & -root)); }

  std::vector<int> Children() const {
    std::vector<int> children;
    for (int step = 1; position_ + step < End(position_); step *= 2)
      children.push_back(position_ + step);
    return children;
  }

 private:
  static int ParentOf(int position) { return position & (position - 1); }

  int position_;
  int size_;
};

}  // namespace hvd
