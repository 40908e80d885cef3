#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Allreduce among the ranks of a host. Every element is combined in rank order, so all ranks get the same
// bits, on every run.
//
// Up to Board::inline_bytes(), or what the spec says as far as a slot holds it: everybody puts its input into
// its slot and reduces all slots itself; one flag each.
//
// Larger: the stream of pieces is cut in chunks, each chunk in as many slices as there are ranks. Rank r
//   copies its input of the others' slices into its staging            (kCopied),
//   reduces slice r, its own input straight from the tensor, the others' from their staging, into its
//     staging and its own output in one pass                            (kReduced),
//   copies the others' slices out of their staging                      (kTaken).
// The phases wait on flags of their own instead of a barrier, so copying in chunk k+1 overlaps reducing
// chunk k, and the staging stays in cache.
//
// Complete only when every member has taken its last chunk: who reports success knows that all will.
std::unique_ptr<StepMachine> MakeWindowAllreduce(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
