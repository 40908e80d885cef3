#pragma once

#include <vector>

#include "negotiate/message.h"
#include "random.h"

namespace hvd::negotiate {

// An operation of one of these kinds that can run, without a name, root 0; of an alltoall without
// splits.
Request RandomRequest(Random* random, const std::vector<OpKind>& kinds);

}  // namespace hvd::negotiate
