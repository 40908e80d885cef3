#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Reducescatter among the ranks of a host: every rank reduces its own part of all inputs, in rank order, so
// its bits are those of an allreduce. See CollectiveSpec::rank_bytes.
//
// Up to kSlotBytes: everybody puts its whole input into its slot and reduces its part of all slots.
//
// Larger: each part is a stream, cut in segments of one size; chunk k of a rank's staging holds segment k of
// every other rank's part. Rank r
//   copies segment k of the others' parts into its staging              (kCopied),
//   reduces segment k of its own part, its own input straight from the tensor, the others' from their
//     staging, into its output                                           (kTaken).
// Nothing is handed back through the staging, so kReduced is passed at once. Copying in chunk k+1 overlaps
// reducing chunk k.
//
// An output may lie in its own input, at the place of the own part: it is written only where, and when, the
// own input has been read.
//
// A large one is complete only when every member has taken the last chunk: who reports success knows that
// all will.
std::unique_ptr<StepMachine> MakeWindowReducescatter(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
