#pragma once

#include <memory>

#include "backend/nccl/communicator.h"
#include "base/collective.h"

namespace hvd::nccl {

// A collective on a GPU as a machine: the communicator's stream waits for the tensors' inputs, they
// are copied where they must be, NCCL gets its calls, results are copied back, and the tensors'
// streams wait. It is done when the GPU has all of that before it. A tensor's stream that records a
// graph meanwhile is waited for: the operation can be no part of it.
std::unique_ptr<StepMachine> MakeGpuCollective(CollectiveSpec spec, Communicator* communicator,
                                               int rank, int size);

}  // namespace hvd::nccl
