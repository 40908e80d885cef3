#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Everybody sends its input to everybody and reduces all inputs in rank order: one latency, for small sizes.
std::unique_ptr<StepMachine> MakeDirectAllreduce(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
