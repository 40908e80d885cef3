#pragma once

#include "runtime/operation/handle.h"

namespace hvd {

// What a rank that has joined runs in place of an operation that it did not submit: the same request over
// memory of its own. To a reduction it brings the element that changes nothing (zero to Sum, Average and
// Adasum; the identity of Min, Max and Product), to an allgather or alltoall no rows; what it receives is
// dropped. `request` is another rank's.
Status MakeStandIn(uint32_t process_set, const negotiate::Request& request, uint64_t ordinal,
                   HandlePtr* handle);

}  // namespace hvd
