#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Reducescatter over point-to-point links, see CollectiveSpec::rank_bytes.
std::unique_ptr<StepMachine> MakeRingReducescatter(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
