#pragma once

#include <memory>
#include <vector>

#include "runtime/control.h"
#include "transport/transport.h"

namespace hvd {

// Control over point-to-point links: a star around the sequencer. `members` are global ranks.
std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set, std::vector<int> members);

}  // namespace hvd
