#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/nccl/gpu_runtime.h"
#include "base/rank.h"

namespace hvd {

// Collectives on the memory of GPUs, by NCCL. They are done as soon as the GPU has been given them:
// the streams of their tensors wait for it, the host does not. `host` serves the set too, and
// outlives it: the members exchange by it what a communicator needs.
std::unique_ptr<Backend> MakeNcclBackend(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host,
                                         uint32_t set, Members members, Position position);

}  // namespace hvd
