#pragma once

#include <cstdint>

#include "transport/shm/message.h"
#include "transport/tree.h"

namespace hvd::shm {

// What follows one after the other when something is shared, and which way it travels.
enum class Stage { kWakersUp, kDown, kVerdictUp, kVerdictDown };

// Until when a rank waits for its neighbour in one stage: the last quarter of the time before `deadline` is
// divided among all stages and levels of the tree. Whoever is next to a rank that is missing gives up first,
// so that those behind it hear from it which rank that is, and blame no other.
inline Deadline GiveUpAt(Stage stage, const Tree& tree, int64_t now, Deadline deadline) {
  constexpr int kStages = 4;
  const int levels = tree.levels();
  const bool up = stage == Stage::kWakersUp || stage == Stage::kVerdictUp;
  const int later = up ? tree.depth() : levels - 1 - tree.depth();
  const int steps = (kStages - 1 - static_cast<int>(stage)) * levels + later;
  return deadline - (deadline - now) / 4 * steps / (kStages * levels);
}

}  // namespace hvd::shm
