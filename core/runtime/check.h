#pragma once

#include "base/status.h"
#include "runtime/handle.h"

namespace hvd {

// What one caller can get wrong, found before anything is sent.
Status CheckEntry(const Entry& entry);

}  // namespace hvd
