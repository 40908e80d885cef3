#include "runtime/engine/set_registry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/operation/queue.h"

namespace hvd {

namespace {

// How many ids of its own a rank has. The last numbers mean something else.
uint32_t RangeOf(int job_size) {
  return (SetRegistry::kFirstOwn - SetRegistry::kMostSets) / static_cast<uint32_t>(job_size);
}

uint32_t BeginOfRange(GlobalRank rank, int job_size) {
  return SetRegistry::kFirstOwn + RangeOf(job_size) * static_cast<uint32_t>(rank.index());
}

Status TooMany() {
  return Status::Invalid("a job has at most " + std::to_string(SetRegistry::kMostSets) +
                         " process sets at a time: remove some that are not needed any more");
}

}  // namespace

Status SetRegistry::Add(Members members, uint32_t* id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (sets_.size() - own_ >= kMostSets || next_ == kFirstOwn) return TooMany();
  sets_[next_].members = std::move(members);
  *id = next_++;
  return Status::Ok();
}

// Those of one rank follow each other: what is kept of ids that are over is kept as ranges.
Status SetRegistry::Number(int job_size, uint32_t* id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (named_ >= RangeOf(job_size)) return TooMany();
  *id = BeginOfRange(rank_, job_size) + named_++;
  return Status::Ok();
}

bool SetRegistry::MayHaveGiven(GlobalRank first, int job_size, uint32_t id) {
  const uint32_t begin = BeginOfRange(first, job_size);
  return id >= begin && id - begin < RangeOf(job_size);
}

Status SetRegistry::AddAs(uint32_t id, Members members) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (own_ >= kMostSets) return TooMany();
  const bool fresh = id >= kFirstOwn && sets_.emplace(id, Set{std::move(members)}).second;
  own_ += fresh ? 1 : 0;
  return fresh ? Status::Ok() : Status::Internal("two process sets have one number");
}

void SetRegistry::Remove(uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t gone = sets_.erase(id);
  if (id >= kFirstOwn) own_ -= gone;
}

bool SetRegistry::SetClosed(uint32_t id, bool closed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end()) return false;
  found->second.closed = closed;
  return true;
}

bool SetRegistry::Close(uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sets_.find(id);
  return found != sets_.end() && !std::exchange(found->second.closed, true);
}

Status SetRegistry::Admits(uint32_t id, size_t* members) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end() || found->second.closed) {
    return NoSuchSet(id);
  }
  const std::vector<GlobalRank>& ranks = found->second.members.ranks();
  *members = ranks.size();
  if (std::binary_search(ranks.begin(), ranks.end(), rank_)) return Status::Ok();
  return Status::Invalid(Name(rank_) + " does not belong to process set " + std::to_string(id));
}

bool SetRegistry::Has(uint32_t id, GlobalRank rank) const { return MembersOf(id).Has(rank); }

Members SetRegistry::MembersOf(uint32_t id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? Members() : found->second.members;
}

std::vector<uint32_t> SetRegistry::Included() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint32_t> ids;
  for (const auto& [id, set] : sets_) {
    if (!set.closed && set.members.Has(rank_)) ids.push_back(id);
  }
  return ids;
}

}  // namespace hvd
