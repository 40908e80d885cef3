// A merger while its set follows a schedule: nothing is announced, but who waits at a gate for long
// says so.

#include "negotiate/merge/merger.h"

namespace hvd::negotiate {

void Merger::Follow() {
  ++epoch_;
  tallies_.Drop();
  urgency_.Restart();
  for (Child& child : children_) {
    child.joined = {};
    child.all_joined = false;
    child.ordinal = tallies_.unnamed_base() - 1;
    child.waiting.clear();
  }
  joined_ = {};
  all_joined_ = 0;
  merged_.assign(1, {});
  told_some_ = told_all_ = 0;
  told_.clear();
  next_look_ = -1;
  tells_gated_ = false;
}

void Merger::Forget() {
  Follow();
  cache_.Clear();
  name_of_id_.clear();
  tallies_.ForgetNames();
}

void Merger::Resume(uint64_t unnamed) {
  tallies_.Skip(unnamed);
  for (Child& child : children_) child.ordinal += unnamed;
}

// Whoever waits at an earlier gate will be told that it has passed.
Status Merger::NoteGate(size_t child, const AnnounceMessage& message, Micros now) {
  const Child& sender = children_[child];
  const Positions& gated = sender.IsMember() ? sender.below : message.gated;
  if (sender.IsMember() ? !message.gated.empty() : gated.empty() || !sender.below.Includes(gated))
    return Corrupt(child, "says of ranks that are not below it at which gate they wait");
  if (message.waits_at < gated_.gate) return Status::Ok();
  if (message.waits_at > gated_.gate) gated_ = {message.waits_at, {}, now};
  gated_.members.Add(gated);
  tells_gated_ = true;
  return Status::Ok();
}

bool Merger::TakeGated(AnnounceMessage* merged) {
  if (!std::exchange(tells_gated_, false)) return false;
  *merged = {};
  merged->epoch = epoch_;
  merged->waits_at = gated_.gate;
  merged->gated = gated_.members;
  return true;
}

}  // namespace hvd::negotiate
