#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/nccl/gpu_runtime.h"
#include "base/rank.h"

namespace hvd::test {

// The backend of GPUs below tests whose tensors lie on the host. As a framework would, it has a
// stream on each of two GPUs, and memory there that the stream fills and reads: so a collective
// that does not wait for its inputs, or does not have the stream wait, reads or gives other values.
// With the stand-ins of tests/fake_gpu.
std::unique_ptr<Backend> MakeBackendOnGpu(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host,
                                          uint32_t set, const Members& members, Position position);

}  // namespace hvd::test
