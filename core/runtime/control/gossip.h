#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/rank.h"
#include "negotiate/marks.h"
#include "transport/frames.h"
#include "transport/transport.h"

namespace hvd {

// The marks of members that have only links with each other. Few tell each other directly. More
// of them pass on what they have heard, to those at distances 1, 2, 4, ... ahead, so that all know
// of all after ceil(log2(members)) messages on the longest way (dissemination, as in a barrier:
// D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988). A message
// is sent when there is news for its receiver, and says all of it. Never waits.
class Gossip {
 public:
  // `weights`: a member's payload is that of so many. `places`: where those of all lie, by the
  // parity of the batch: of this member, of the one behind it, and so on.
  Gossip(Transport* transport, uint32_t set, Members members, const std::vector<int>& weights,
         const negotiate::Batches* batches, std::array<std::byte*, 2> places);

  void Begin();  // once `batches` has begun
  void End() { follows_ = false; }

  // This member's own. The payload of its latest batch lies in its place, if that carries one.
  void Tell(const negotiate::Marks& own);
  void Look(bool* moved);
  // Of all members, as far as this one knows.
  const negotiate::Marks& all() const { return all_; }

  bool relays() const { return members_.size() > kFewMembers; }
  Position corrupt() const { return corrupt_; }
  bool idle() const;

 private:
  static constexpr int kFewMembers = 8;  // so few may all be linked

  // This member tells the one `distance` ahead of itself and of those right behind it, `count` in
  // all; and hears likewise from the one `distance` behind.
  struct Hop {
    int distance;
    int count;
    FramesOut out;
    FramesIn in;
    negotiate::Marks heard = {};
    negotiate::Marks told = {};
  };

  Position PositionAt(int ahead) const {
    return Position((position_.value() + ahead + members_.size()) % members_.size());
  }
  // How many payloads this member and those behind it bring, `count` in all.
  size_t WeightOf(int count) const { return weights_[static_cast<size_t>(count)]; }
  void MakeHops();
  bool Hear(Hop* hop, bool* moved);
  bool Take(Hop* hop, const negotiate::Marks& said, size_t payload_bytes);
  void TellAll();
  void Send(Hop* hop, const negotiate::Marks& news);

  Transport* const transport_;
  const uint32_t set_;
  const Members members_;
  const Position position_;
  const negotiate::Batches* const batches_;
  std::vector<size_t>
      weights_;           // of this member and those behind it together, by how many they are
  std::deque<Hop> hops_;  // a deque does not move its elements; none before they are wanted
  bool follows_ = false;
  negotiate::Marks own_;
  negotiate::Marks all_;
  const std::array<std::byte*, 2> places_;
  Position corrupt_;
};

}  // namespace hvd
