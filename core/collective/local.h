#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"

namespace hvd {

// Any collective in a set of one: an allreduce or reducescatter still scales, the others copy.
std::unique_ptr<StepMachine> MakeLocal(const CollectiveSpec& spec);

// A collective that failed before it started.
std::unique_ptr<StepMachine> MakeFailed(Status status);

}  // namespace hvd
