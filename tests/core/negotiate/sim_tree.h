#pragma once

#include <memory>
#include <vector>

#include "base/topology.h"
#include "negotiate/coordinator.h"

namespace hvd::negotiate {

// The tree of a set, as its engines make it together. Whoever has one carries the messages between
// the nodes.
class SimTree {
 public:
  static constexpr int kRoot = 0;

  // Where somebody announces: a node, and the child that it is there.
  struct Place {
    int node = -1;
    size_t child = 0;
  };
  // Whom a response goes to: a node, or else a member.
  struct Target {
    int node = -1;
    int member = -1;
  };

  // `few`: see Topology::TreePlaceOf; by default even the smallest tree is deep.
  SimTree(const SequencerOptions& options, const Topology& topology, int few = 1);

  Coordinator& root() { return *root_; }
  const Coordinator& root() const { return *root_; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  Place PlaceOf(int member) const { return members_[static_cast<size_t>(member)]; }
  Place ParentOf(int node) const { return nodes_[static_cast<size_t>(node)].parent; }
  const std::vector<Target>& ChildrenOf(int node) const {
    return nodes_[static_cast<size_t>(node)].children;
  }

  // `up`: what the node sends to its parent; the root has none. Null: it is left for later.
  Status Announce(Place at, AnnounceMessage message, Micros now, std::vector<AnnounceMessage>* up);
  // What is due at a node though nothing came.
  void Look(int node, Micros now, std::vector<AnnounceMessage>* up);
  Status Pass(int node, const Response& response);
  void Resume(int node, uint64_t unnamed) {
    nodes_[static_cast<size_t>(node)].merger->Resume(unnamed);
  }
  const Merger& merger(int node) const {
    return node == kRoot ? root_->merger() : *nodes_[static_cast<size_t>(node)].merger;
  }

 private:
  struct Node {
    std::unique_ptr<Merger> merger;  // none at the root
    Place parent;
    std::vector<Target> children;
  };

  std::unique_ptr<Coordinator> root_;
  std::vector<Node> nodes_;
  std::vector<Place> members_;
};

}  // namespace hvd::negotiate
