// A merger while its set follows a schedule: nothing is announced, but who waits for long says so.

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
  tells_waiters_ = false;
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

// Whoever waits for an earlier batch will find that it runs.
Status Merger::NoteWaiters(size_t child, const AnnounceMessage& message, Micros now) {
  const Child& sender = children_[child];
  const Positions& waiters = sender.IsMember() ? sender.below : message.waiters;
  if (sender.IsMember() ? !message.waiters.empty()
                        : waiters.empty() || !sender.below.Includes(waiters))
    return Corrupt(child, "says of ranks that are not below it which batch they wait for");
  if (message.waits_for < waiters_.batch) return Status::Ok();
  if (message.waits_for > waiters_.batch) waiters_ = {message.waits_for, {}, now};
  waiters_.members.Add(waiters);
  tells_waiters_ = true;
  return Status::Ok();
}

bool Merger::TakeWaiters(AnnounceMessage* merged) {
  if (!std::exchange(tells_waiters_, false)) return false;
  *merged = {};
  merged->epoch = epoch_;
  merged->waits_for = waiters_.batch;
  merged->waiters = waiters_.members;
  return true;
}

}  // namespace hvd::negotiate
