// Several allreduces that travel while their program goes on: it starts each, a *part* of a *step*,
// as soon as its tensor is computed, and takes the results of all of them later.
#pragma once

#include "api/c_api.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

// Starts the part that a frame describes, and does not wait: its failure is told by TakeStep. Parts
// have names, so that each rank may start them in an order of its own.
Error* StartPart(hvd_api* core, Frame* frame);

// Hands out the results of a step. A program takes it behind the starts of all of its parts, and
// starts no other step of the same name before.
Error* TakeStep(hvd_api* core, Frame* frame);

}  // namespace hvd::xla
