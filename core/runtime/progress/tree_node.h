#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/rank.h"
#include "base/topology.h"
#include "negotiate/coordinator.h"
#include "runtime/control/control.h"
#include "runtime/operation/counters.h"
#include "runtime/progress/executor.h"

namespace hvd {

// What a rank does in the negotiation of its set beside announcing its own operations, by its place
// in the tree: a leaf hears, an inner node merges what its children announce and hands the
// responses down to them, the root decides.
class TreeNode {
 public:
  using Micros = negotiate::Micros;

  virtual ~TreeNode() = default;

  // What a child announces; the first one is this rank itself.
  virtual Status Announce(size_t child, negotiate::AnnounceMessage message, Micros now) = 0;
  // Tells the parent what there is to tell.
  virtual void Report(Micros /*now*/, bool* /*moved*/) {}

  // The next response that this rank carries out, if there is one; those below it get it, too.
  // `policy`: behind which the response travels; the root's own goes in.
  virtual Status Next(Micros now, Policy* policy, std::optional<negotiate::Response>* response) = 0;

  // This rank has left a schedule; see Coordinator::Resume.
  virtual void Resume(uint64_t /*batches*/, uint64_t /*unnamed*/) {}

  // When Report or Next has something to do though nothing arrives; -1 = never.
  virtual Micros Deadline() const { return -1; }

  // Null where nobody announces but this rank.
  virtual const negotiate::Merger* merger() const { return nullptr; }
  // Null but on the root.
  virtual negotiate::Coordinator* root() { return nullptr; }
};

// By the place of this rank, over `control`.
std::unique_ptr<TreeNode> MakeTreeNode(const negotiate::SequencerOptions& options,
                                       const Topology::TreePlace& place, Control* control,
                                       Counters* counters);

}  // namespace hvd
