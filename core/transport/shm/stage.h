#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/shm/message.h"

namespace hvd::shm {

// What follows one after the other when something is shared, and which way it travels.
enum class Stage { kWakersUp, kDown, kVerdictUp, kVerdictDown };

// Until when a rank waits for its neighbour in one stage, so that nobody waits beyond `deadline`. Whoever is
// next to a rank that is missing gives up first: those behind it hear from it which rank that is, and blame
// no other.
inline Deadline GiveUpAt(Stage stage, int depth, int64_t now, Deadline deadline) {
  constexpr int kLevels = 16;
  constexpr int kSteps = 16 * kLevels;
  const bool up = stage == Stage::kWakersUp || stage == Stage::kVerdictUp;
  const int level = std::min(depth, kLevels - 1);
  const int later = up ? level : kLevels - 1 - level;
  const int steps = (static_cast<int>(Stage::kVerdictDown) - static_cast<int>(stage)) * kLevels + later;
  return deadline - (deadline - now) / kSteps * steps;
}

}  // namespace hvd::shm
