#pragma once

#include <memory>

#include "api/c_api.h"
#include "runtime/engine.h"

namespace hvd::api {

// Starts an operation of native code. `done` is called exactly once, whatever happens.
void Submit(const std::shared_ptr<Engine>& engine, const hvd_operation& operation, hvd_done done,
            void* context);

}  // namespace hvd::api
