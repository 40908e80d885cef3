#include "negotiate/merge/urgency.h"

#include <algorithm>

namespace hvd::negotiate {

void Urgency::Open(size_t operation) {
  const size_t needed = (operation + 1) * children_.size();
  // With many children this is most of what a node keeps: room for a few more is enough.
  if (indexes_.capacity() < needed) indexes_.reserve(needed + needed / 8);
  if (indexes_.size() < needed) indexes_.resize(needed, 0);
}

void Urgency::Urge(size_t child, uint64_t some, uint64_t all) {
  Child& urged = children_[child];
  if (some <= urged.some && all <= urged.all) return;
  urged.some = std::max(urged.some, some);
  urged.all = std::max(urged.all, all);
  for (Watched& watched : watched_) {
    if (IsWithin(Index(watched.operation)[child], urged.some)) some_ = std::max(some_, watched.at);
    if (watched.not_blocked == child) Watch(&watched);
  }
  while (!watched_.empty() && watched_.front().at <= all_) watched_.pop_front();
}

void Urgency::Complete(size_t operation) {
  Watched watched{operation, ++announced_, 0};
  const uint32_t* index = Index(operation);
  for (size_t c = 0; c < children_.size() && some_ < watched.at; ++c) {
    if (IsWithin(index[c], children_[c].some)) some_ = watched.at;
  }
  Watch(&watched);
  if (watched.at > all_) {
    watched_.push_back(watched);
  } else {
    watched_.clear();
  }
}

// Nobody becomes unblocked of a tensor, so each child is looked at once per tensor.
void Urgency::Watch(Watched* watched) {
  size_t& child = watched->not_blocked;
  const uint32_t* index = Index(watched->operation);
  while (child < children_.size() && IsWithin(index[child], children_[child].all)) ++child;
  if (child == children_.size()) all_ = std::max(all_, watched->at);
}

void Urgency::Release(size_t operation) {
  std::fill_n(Index(operation), children_.size(), 0);
  // What is complete is decided in that order, with few exceptions.
  const auto found = std::find_if(watched_.begin(), watched_.end(),
                                  [=](const Watched& w) { return w.operation == operation; });
  if (found != watched_.end()) watched_.erase(found);
}

void Urgency::Restart() {
  std::fill(children_.begin(), children_.end(), Child());
  std::fill(indexes_.begin(), indexes_.end(), 0);
  watched_.clear();
  announced_ = some_ = all_ = 0;
}

}  // namespace hvd::negotiate
