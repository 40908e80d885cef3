#include "negotiate/schedule.h"

#include <algorithm>
#include <utility>

namespace hvd::negotiate {
namespace {

constexpr size_t kMostRepeats = 96;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

uint64_t DigestOf(const Slot& slot) {
  uint64_t digest = Mix(slot.id * 2 + (slot.unnamed ? 1 : 0) + 1);
  for (const int64_t size : slot.sizes) digest = Mix(digest + static_cast<uint64_t>(size));
  return digest;
}

}  // namespace

Schedule ScheduleLearner::Note(const Response& response, bool quiet) {
  if (options_.repeats == 0) return {};
  if (learnable_ && !Take(response)) {
    learnable_ = false;
    step_ = {};  // what never comes to rest must not pile up
  }
  if (!quiet) return {};
  if (!std::exchange(learnable_, true)) {
    Forget();
    return {};
  }
  EndStep();
  const size_t period = Period();
  return period == 0 ? Schedule() : Latest(period);
}

// Whether it can be part of a schedule: what fails, is new, or lacks a joined member cannot.
bool ScheduleLearner::Take(const Response& response) {
  if (response.last_joined.known() || response.decisions.empty()) return false;
  const uint64_t operations = OperationsIn(response);
  step_.slots += operations;
  if (step_.slots > options_.longest_step) return false;
  std::vector<Slot>& batch = step_.batches.emplace_back();
  batch.reserve(operations);
  for (const Decision& decision : response.decisions) {
    if (!decision.known || decision.partial || !decision.error.empty()) return false;
    step_.sizes += decision.sizes.size();
    if (step_.sizes > options_.most_sizes) return false;
    for (uint32_t i = 0; i < decision.count; ++i) {
      batch.push_back({decision.id + i, decision.ordinal != 0, decision.sizes});
      step_.digest += DigestOf(batch.back());
    }
  }
  return true;
}

void ScheduleLearner::EndStep() {
  digests_.push_back(step_.digest);
  if (digests_.size() > options_.longest_period * needed_) digests_.pop_front();
  weight_ += step_.weight();
  steps_.push_back(std::exchange(step_, {}));
  const auto too_many = [this] {
    return steps_.size() > options_.longest_period ||
           (steps_.size() > options_.few_steps && weight_ > options_.most_of_many);
  };
  for (; too_many(); steps_.pop_front()) weight_ -= steps_.front().weight();
}

size_t ScheduleLearner::Period() const {
  const auto repeats = [this](size_t period) {
    const auto later = digests_.end() - static_cast<int64_t>(period * (needed_ - 1));
    return std::equal(later, digests_.end(), later - static_cast<int64_t>(period));
  };
  for (size_t period = 1; period <= steps_.size(); ++period) {
    if (digests_.size() < period * needed_) return 0;
    if (repeats(period)) return period;
  }
  return 0;
}

Schedule ScheduleLearner::Latest(size_t period) {
  Schedule schedule;
  for (size_t i = steps_.size() - period; i < steps_.size(); ++i) {
    for (auto& batch : steps_[i].batches) schedule.batches.push_back(std::move(batch));
  }
  Forget();
  last_size_ = schedule.batches.size();
  return schedule;
}

void ScheduleLearner::Forget() {
  digests_.clear();
  steps_.clear();
  weight_ = 0;
}

void ScheduleLearner::Left(size_t batches) {
  const bool served = batches >= 8 * last_size_;
  needed_ =
      served ? options_.repeats : std::min(2 * needed_, std::max(kMostRepeats, options_.repeats));
  Restart();
}

void ScheduleLearner::Restart() {
  step_ = {};
  Forget();
  learnable_ = true;
}

}  // namespace hvd::negotiate
