#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Reducescatter over point-to-point links, see CollectiveSpec::rank_bytes: the parts go round a ring once.
// When no part has more than kDirectBytes everybody sends each rank its part instead.
//
// An output may lie in its own input, at the place of the own part.
std::unique_ptr<StepMachine> MakeRingReducescatter(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
