#pragma once

#include "api/c_api.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

// Starts the collective that a frame describes. XLA keeps the frame's buffers until the frame's
// future is complete, and no thread of it waits meanwhile. Returns an error where nothing could be
// started.
Error* Start(hvd_api* core, Frame* frame);

}  // namespace hvd::xla
