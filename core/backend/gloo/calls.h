#pragma once

#include <gloo/context.h>

#include <memory>

#include "backend/library/library.h"

namespace hvd::gloo_backend {

// Waits until Gloo has done it. Throws what Gloo throws.
void Run(const std::shared_ptr<gloo::Context>& context, const LibraryCall& call,
         CombineFunction combine);

}  // namespace hvd::gloo_backend
