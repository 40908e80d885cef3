#include "sim_tree.h"

#include <map>
#include <utility>

namespace hvd::negotiate {

SimTree::SimTree(const SequencerOptions& options, const Topology& topology, int few) {
  std::vector<Topology::TreePlace> places;
  std::map<int, int> node_of;  // by position
  for (int m = 0; m < topology.size(); ++m) {
    places.push_back(topology.TreePlaceOf(Position(m), few));
    if (!places.back().children.empty()) node_of.emplace(m, static_cast<int>(node_of.size()));
  }
  nodes_.resize(node_of.size());
  members_.resize(places.size());
  for (const auto& [member, node] : node_of) {
    std::vector<MergerOptions::Child> children;
    for (const auto& child : places[static_cast<size_t>(member)].children) {
      const Place here{node, children.size()};
      const int at = child.at.value();
      const bool leaf = child.below.size() == 1;
      if (leaf) members_[static_cast<size_t>(at)] = here;
      if (!leaf) nodes_[static_cast<size_t>(node_of.at(at))].parent = here;
      nodes_[static_cast<size_t>(node)].children.push_back(leaf ? Target{-1, at}
                                                                : Target{node_of.at(at), -1});
      children.push_back({options.members[child.at], child.below});
    }
    if (node == kRoot) {
      root_ = std::make_unique<Coordinator>(options, std::move(children));
      continue;
    }
    MergerOptions merging;
    merging.children = std::move(children);
    nodes_[static_cast<size_t>(node)].merger = std::make_unique<Merger>(std::move(merging));
  }
}

Status SimTree::Announce(Place at, AnnounceMessage message, Micros now,
                         std::vector<AnnounceMessage>* up) {
  if (at.node == kRoot) return root_->Announce(at.child, std::move(message), now);
  Merger& merger = *nodes_[static_cast<size_t>(at.node)].merger;
  HVD_RETURN_IF_ERROR(merger.Announce(at.child, std::move(message), now));
  for (AnnounceMessage merged; up != nullptr && merger.Take(&merged);)
    up->push_back(std::move(merged));
  return Status::Ok();
}

void SimTree::Look(int node, Micros now, std::vector<AnnounceMessage>* up) {
  Merger& merger = *nodes_[static_cast<size_t>(node)].merger;
  merger.Look(now);
  for (AnnounceMessage merged; merger.Take(&merged);) up->push_back(std::move(merged));
}

Status SimTree::Pass(int node, const Response& response) {
  return node == kRoot ? Status::Ok() : nodes_[static_cast<size_t>(node)].merger->Pass(response);
}

}  // namespace hvd::negotiate
