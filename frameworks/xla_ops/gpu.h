#pragma once

#include "api/c_api.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

// A collective of a program on a GPU of CUDA: its tensors travel through the memory of the host.
// The thread that hands the program to the GPU waits in it, so programs run theirs in order.
Error* RunOnGpu(hvd_api* core, Frame* frame);

}  // namespace hvd::xla
