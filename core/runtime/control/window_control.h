#pragma once

#include <cstddef>
#include <memory>

#include "runtime/control/control.h"
#include "transport/window.h"

namespace hvd {

// Control through shared memory: every member owns a segment with the stream it writes and the counts of
// what it has read. It takes so many bytes.
size_t WindowControlBytes();
Status MakeWindowControl(Window* window, std::unique_ptr<Control>* control);

}  // namespace hvd
