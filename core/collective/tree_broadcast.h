#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Broadcast along a binomial tree, cut in frames: a node passes a frame on as soon as it has it.
std::unique_ptr<StepMachine> MakeTreeBroadcast(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
