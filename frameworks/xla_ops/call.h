#pragma once

#include "api/c_api.h"
#include "xla_ops/errors.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

// Starts the collective that a frame describes. XLA keeps the frame's buffers until the frame's
// future is complete, and no thread of it waits meanwhile. Returns an error where nothing could be
// started.
Error* Start(hvd_api* core, Frame* frame);

// The same for buffers in memory of the caller's, who waits. Throws bad_alloc where nothing was
// started.
Failure Run(hvd_api* core, const Frame& frame);

}  // namespace hvd::xla
