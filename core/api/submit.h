#pragma once

#include <memory>

#include "api/c_api.h"
#include "runtime/engine/engine.h"

namespace hvd::api {

// Starts an operation of native code. `done` is called exactly once, whatever happens, also without memory.
void Submit(const std::shared_ptr<Engine>& engine, const hvd_operation& operation, hvd_done done,
            void* context) noexcept;

}  // namespace hvd::api
