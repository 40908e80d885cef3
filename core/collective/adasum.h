#pragma once

#include <functional>
#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/scratch.h"

namespace hvd {

// Starts another collective of the same set; how Adasum is composed of the others, over any seam.
using StartCollective = std::function<std::unique_ptr<StepMachine>(const CollectiveSpec&)>;

// Allreduce with op Adasum.
std::unique_ptr<StepMachine> MakeAdasum(const CollectiveSpec& spec, int rank, int size,
                                        std::shared_ptr<ScratchPool> scratch, StartCollective start);

}  // namespace hvd
