#pragma once

#include <memory>

#include "base/rank.h"
#include "runtime/control/control.h"
#include "transport/transport.h"

namespace hvd {

// Control over point-to-point links: a star around the sequencer.
std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set, Members members);

}  // namespace hvd
