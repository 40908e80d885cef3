// The part of a merger that knows of members which have joined: they have no more data, take part
// in what the others go on with, and wait until these have joined, too.

#include <algorithm>

#include "negotiate/merge/merger.h"

namespace hvd::negotiate {

// Of what is announced without its senders listed, these are all who have not joined: so they are
// listed of what the child has announced by now, before some of them join.
void Merger::Joined(size_t child, const Positions& joined) {
  tallies_.ForEach([&](Tally* tally) {
    if (!tally->complete && urgency_.Has(child, tally->number)) List(tally);
  });
  if (!merged_.back().announcements.empty() || merged_.back().waiting) merged_.emplace_back();
  merged_.back().joined.Add(joined);
  children_[child].joined.Add(joined);
  joined_.Add(joined);
}

void Merger::Join(size_t child, Position last) {
  if (children_[child].IsMember()) {
    last = Position(children_[child].below.runs()[0].first);
    Joined(child, children_[child].below);
  }
  children_[child].all_joined = true;
  ++all_joined_;
  urgency_.Urge(child, urgency_.Announced(child), urgency_.Announced(child));
  std::vector<Tally*> lacking;
  tallies_.ForEach([&](Tally* tally) {
    if (!tally->complete && !urgency_.Has(child, tally->number)) lacking.push_back(tally);
  });
  // Tallies are recycled, so their order here says nothing about their age.
  std::sort(lacking.begin(), lacking.end(),
            [](const Tally* a, const Tally* b) { return a->order < b->order; });
  for (Tally* tally : lacking) {
    if (++tally->count == children_.size()) Complete(tally, {});
  }
  if (all_joined_ < children_.size()) return;
  // Nothing is incomplete: whatever was announced lacked none but joined members.
  merged_.back().joins = true;
  merged_.back().last = last;
  merged_.emplace_back();
}

Status Merger::EndJoin() {
  if (all_joined_ < children_.size() || tallies_.in_flight() > 0) {
    return Status::Aborted("a response ends a join that not all ranks here have begun");
  }
  for (Child& child : children_) {
    child.joined = {};
    child.all_joined = false;
    child.ordinal = 0;
  }
  joined_ = {};
  all_joined_ = 0;
  tallies_.Restart();
  return Status::Ok();
}

}  // namespace hvd::negotiate
