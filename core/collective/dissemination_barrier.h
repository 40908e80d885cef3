#pragma once

#include <memory>

#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Barrier in ceil(log2 size) rounds: in round k everybody tells the rank 2^k places on, and hears from the
// one 2^k places before (Hensgen, Finkel and Manber 1988).
std::unique_ptr<StepMachine> MakeDisseminationBarrier(const Group& group, uint64_t sequence);

}  // namespace hvd
