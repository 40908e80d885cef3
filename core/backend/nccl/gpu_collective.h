#pragma once

#include <memory>

#include "backend/nccl/communicator.h"
#include "base/collective.h"

namespace hvd::nccl {

// A collective on a GPU as a machine: the communicator's stream waits for the tensors' inputs, they
// are copied where they must be, NCCL gets its calls, and results are copied back. It is done when
// the GPU has all of that before it, and tells the end of it for others to wait for: their own work
// may go on meanwhile.
std::unique_ptr<StepMachine> MakeGpuCollective(CollectiveSpec spec, Communicator* communicator,
                                               int rank, int size);

}  // namespace hvd::nccl
