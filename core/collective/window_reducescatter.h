#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Reducescatter among the ranks of a host, see CollectiveSpec::rank_bytes.
std::unique_ptr<StepMachine> MakeWindowReducescatter(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
