#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/nccl/session.h"
#include "base/rank.h"

namespace hvd::nccl {

// Makes the communicator of a set, as a machine: its members prepare, tell each other over `host`
// how that went, with the id that the first one has made, and connect. If one cannot prepare, all
// fail with its reason.
std::unique_ptr<StepMachine> MakeSettingUp(Session* session, Backend* host, const Members& members,
                                           Position position, uint64_t sequence);

}  // namespace hvd::nccl
