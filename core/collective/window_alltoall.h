#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Alltoall among the ranks of a host, see CollectiveSpec::rank_bytes.
std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
