#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Alltoall over point-to-point links, see CollectiveSpec::rank_bytes: every rank sends to every other at the
// same time, cut in frames, from the next rank on.
//
// Why sets that share links do not wait for each other in a circle. The receives of one link wait for
// earlier frames of that link alone. So a frame f of this set can be stuck at the head of a link only because
// its receiver is still in an earlier operation, where it misses a frame g of another sender. Then g was
// posted before f: no member ends an alltoall before everybody has posted all sends of it, because the last
// frame on each link is held back until all others are posted, goes out to everybody at the same time, and
// is sent even where there is no data. If g is stuck in turn, it is behind a frame posted before it, and so
// on: every frame that another waits for is older, and the oldest moves.
std::unique_ptr<StepMachine> MakePairwiseAlltoall(const Group& group, const CollectiveSpec& spec);

}  // namespace hvd
