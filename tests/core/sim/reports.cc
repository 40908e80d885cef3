// Whether what the root of a set would say of a stall is true.

#include <algorithm>

#include "negotiate/stall.h"
#include "sim/rank.h"

namespace hvd::sim {

namespace {

// What marks carry ends at once where it is known that all are ready for it. The root may hear that
// so much later, over links that lose packets.
constexpr Nanos kMarksTake = kHeartbeat;

int Levels(int ranks) {
  int levels = 0;
  while ((1 << levels) < ranks) ++levels;
  return levels;
}

}  // namespace

// What a report of stalls would say is true, but for what each level of the tree may need to hear
// of it.
void Rank::CheckReports() {
  const Nanos heard = 3 * kHeartbeat + 2 * kHeartbeat * Levels(job_->shape.ranks);
  for (const auto& set : sets_) {
    if (set->root() == nullptr || job_->plan.ending != Ending::kDone) continue;
    for (const negotiate::Unready& unready : set->Pending(job_->world.micros())) {
      const std::string& name = unready.name;
      if (job_->world.micros() - unready.since < heard / kMicro) continue;
      for (const GlobalRank ready : unready.ready) {
        const Rank& rank = *job_->ranks[ready.index()];
        if (!rank.Awaits(set->id(), name, 0) && !rank.HasJustEnded(set->id(), name))
          Violate("a report says that a rank has submitted what it has not: " + name);
      }
      for (const GlobalRank absent : unready.absent) {
        if (job_->ranks[absent.index()]->Awaits(set->id(), name, heard))
          Violate("a report says that a rank has not submitted what it has: " + name);
      }
    }
  }
}

bool Rank::Awaits(uint32_t set, const std::string& name, Nanos time) const {
  return std::any_of(flights_.begin(), flights_.end(), [&](const Flight& flight) {
    const Handle& handle = *flight.handle;
    return handle.entry.process_set == set && handle.name() == name &&
           (time == 0 || (!handle.decided.load() && job_->world.now() - flight.since >= time));
  });
}

void Rank::NoteEnd(const Handle& handle) {
  ends_[{handle.entry.process_set, handle.name()}] = job_->world.now();
}

bool Rank::HasJustEnded(uint32_t set, const std::string& name) const {
  const auto ended = ends_.find({set, name});
  return ended != ends_.end() && job_->world.now() - ended->second < kMarksTake;
}

std::vector<GlobalRank> Rank::AbsentAfter(int64_t older_than_us) {
  const int64_t then = job_->world.micros() + older_than_us;
  if (sets_.empty() || sets_.front()->root() == nullptr) return {};
  const ProcessSet& set = *sets_.front();
  return negotiate::AbsentFromAll(set.Pending(then), then, older_than_us);
}

}  // namespace hvd::sim
