#pragma once

#include "base/status.h"
#include "runtime/operation/handle.h"

namespace hvd {

// What no rank may ask for, whichever it is: of the description alone.
Status CheckRequest(const negotiate::Request& request);

// What one caller can get wrong, found before anything is sent. `members`: how many its process set has.
Status CheckEntry(const Entry& entry, size_t members);

}  // namespace hvd
