#include "base/positions.h"

#include <algorithm>

namespace hvd {

Positions Positions::Range(int first, int count) {
  Positions range;
  if (count > 0) range.runs_.push_back({first, count, 0});
  return range;
}

// Not before the last run's beginning.
void Positions::Append(int first, int end) {
  if (!runs_.empty() && first <= runs_.back().end()) {
    Run& last = runs_.back();
    last.count = std::max(last.end(), end) - last.first;
  } else {
    runs_.push_back({first, end - first, size()});
  }
}

void Positions::Add(const Positions& other) {
  if (other.empty()) return;
  const bool behind = empty() || other.runs_.front().first >= runs_.back().first;
  std::vector<Run> all = behind ? other.runs_ : std::move(runs_);
  if (!behind) {
    const auto middle = static_cast<std::ptrdiff_t>(all.size());
    all.insert(all.end(), other.runs_.begin(), other.runs_.end());
    std::inplace_merge(all.begin(), all.begin() + middle, all.end(),
                       [](const Run& a, const Run& b) { return a.first < b.first; });
    runs_.clear();
  }
  for (const Run& run : all) Append(run.first, run.end());
}

int Positions::PlaceOf(Position position) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), position.value(),
                                      [](int value, const Run& run) { return value < run.first; });
  if (after == runs_.begin()) return -1;
  const Run& run = *(after - 1);
  return position.value() < run.end() ? run.before + position.value() - run.first : -1;
}

Positions Positions::Without(const Positions& other) const {
  Positions rest;
  auto hole = other.runs_.begin();
  for (const Run& run : runs_) {
    int first = run.first;
    while (hole != other.runs_.end() && hole->end() <= first) ++hole;
    for (auto next = hole; next != other.runs_.end() && next->first < run.end(); ++next) {
      if (next->first > first) rest.Append(first, next->first);
      first = std::max(first, next->end());
    }
    if (first < run.end()) rest.Append(first, run.end());
  }
  return rest;
}

bool Positions::operator==(const Positions& other) const {
  return std::equal(
      runs_.begin(), runs_.end(), other.runs_.begin(), other.runs_.end(),
      [](const Run& a, const Run& b) { return a.first == b.first && a.count == b.count; });
}

std::vector<GlobalRank> Positions::RanksIn(const Members& members) const {
  std::vector<GlobalRank> ranks;
  ranks.reserve(static_cast<size_t>(size()));
  for (const Run& run : runs_) {
    for (Position at(run.first); at.value() < run.end(); at = Next(at))
      ranks.push_back(members[at]);
  }
  return ranks;
}

}  // namespace hvd
