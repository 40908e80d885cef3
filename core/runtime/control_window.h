#pragma once

#include <memory>

#include "runtime/control.h"
#include "transport/window.h"

namespace hvd {

// Control through shared memory: every member owns a segment with the stream it writes and the counts of
// what it has read.
Status MakeWindowControl(Window* window, std::unique_ptr<Control>* control);

}  // namespace hvd
