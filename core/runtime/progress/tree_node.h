#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/rank.h"
#include "base/topology.h"
#include "negotiate/coordinator.h"
#include "runtime/control/control.h"
#include "runtime/operation/counters.h"

namespace hvd {

// What a rank does in the negotiation of its set beside announcing its own operations, by its place
// in the tree: a leaf hears, an inner node merges what its children announce and hands the
// responses down to them, the root decides.
class TreeNode {
 public:
  using Micros = negotiate::Micros;

  TreeNode(const negotiate::SequencerOptions& options, const Topology::TreePlace& place,
           Control* control, Counters* counters);

  // What a child announces; the first one is this rank itself, and of a leaf the only one.
  Status Announce(size_t child, negotiate::AnnounceMessage message, Micros now);
  // Tells the parent what there is to tell.
  void Report(Micros now, bool* moved);

  // The next response that this rank carries out, if there is one; those below it get it, too.
  Status Next(Micros now, std::optional<negotiate::Response>* response);

  // This rank has left a schedule; see Coordinator::Resume.
  void Resume(uint64_t batches, uint64_t unnamed);

  // When Report or Next has something to do though nothing arrives; -1 = never.
  Micros Deadline() const;

  // Null where nobody announces but this rank.
  const negotiate::Merger* merger() const {
    return root_ ? &root_->merger() : inner_ ? &*inner_ : nullptr;
  }
  // Null but on the root.
  negotiate::Coordinator* root() { return root_ ? &*root_ : nullptr; }

 private:
  void Send(const negotiate::AnnounceMessage& message);
  void Publish();

  std::optional<negotiate::Coordinator> root_;  // on the root
  std::optional<negotiate::Merger> inner_;      // on an inner node
  const bool alone_;                            // in the set
  const Position parent_;                       // nobody's on the root
  Control* const control_;
  Counters* const counters_;
  std::string scratch_;  // message bytes, reused
};

}  // namespace hvd
