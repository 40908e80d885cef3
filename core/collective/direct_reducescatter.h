#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Everybody sends each rank its part of the input and reduces what arrives in rank order: one latency, for
// small sizes.
std::unique_ptr<StepMachine> MakeDirectReducescatter(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
