// The part of the sequencer that knows of members which have joined: they have no more data, take
// part in what the others go on with, and wait until these have joined, too.

#include <algorithm>

#include "negotiate/agreement.h"
#include "negotiate/sequencer.h"

namespace hvd::negotiate {

void Sequencer::Join(size_t member, Micros now) {
  members_[member].joined = true;
  ++joined_;
  batch_.Urge(member, members_[member].announced);
  std::vector<Tally*> waiting;
  for (Tally& tally : tallies_) {
    const bool waits = tally.announced() && !tally.ready();
    if (waits && tally.index[member] == Tally::kAbsent) waiting.push_back(&tally);
  }
  // Tallies are recycled, so their order here says nothing about their age.
  std::sort(waiting.begin(), waiting.end(), [](const Tally* a, const Tally* b) {
    return a->since != b->since ? a->since < b->since : a->index < b->index;
  });
  for (Tally* tally : waiting) {
    ++tally->count;
    if (tally->ready()) Ready(tally, now);
  }
  if (joined_ == members_.size()) EndJoin(member);
}

// Nothing is pending: whatever was announced lacked none but joined members.
void Sequencer::EndJoin(size_t last) {
  Close();
  closed_.back().last_joined = RankOf(last);
  joined_ = 0;
  unnamed_base_ = 1;
  for (Member& member : members_) {
    member.joined = false;
    member.ordinal = 0;
  }
}

bool Sequencer::Partial(const Tally& tally) const {
  if (joined_ == 0) return false;
  return std::find(tally.index.begin(), tally.index.end(), Tally::kAbsent) != tally.index.end();
}

// Why a partial operation cannot run for want of its root; empty when it can.
std::string Sequencer::JoinedRoot(const Tally& tally) const {
  const Request& request = RequestOf(tally.variants[0]);
  if (request.kind != OpKind::kBroadcast) return "";
  if (tally.index[options_.members.Find(request.root).index()] != Tally::kAbsent) return "";
  return RootHasJoined(request, tally.ordinal);
}

}  // namespace hvd::negotiate
