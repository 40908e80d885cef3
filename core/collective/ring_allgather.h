#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Ragged allgather: every rank's part goes round the ring once.
std::unique_ptr<StepMachine> MakeRingAllgather(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
