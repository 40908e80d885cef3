#include "sim/world.h"

#include <algorithm>
#include <utility>

namespace hvd::sim {

void World::Wake(int rank, Nanos when) {
  if (!At(rank).stopped) events_.push({std::max(when, now_), random_.Next(), rank, 0});
}

void World::SetTimer(int rank, Nanos when) {
  Seat& seat = At(rank);
  ++seat.timer;
  if (when >= 0) events_.push({std::max(when, now_), random_.Next(), rank, seat.timer});
}

void World::Spend(int rank, Nanos time) { At(rank).busy_until = FreeAt(rank) + time; }

bool World::Next() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Seat& seat = At(event.rank);
    if (seat.stopped || (event.timer != 0 && event.timer != seat.timer)) continue;
    now_ = event.when;
    if (seat.busy_until <= now_) {
      seat.resumes = false;
      seat.actor->Act();
      return true;
    }
    if (!std::exchange(seat.resumes, true)) Wake(event.rank, seat.busy_until);
  }
  return false;
}

}  // namespace hvd::sim
