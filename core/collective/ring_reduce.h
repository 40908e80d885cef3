#pragma once

#include <memory>
#include <vector>

#include "base/collective.h"
#include "collective/piece_stream.h"
#include "collective/ring.h"

namespace hvd {

// Whether a block stays with the rank that finishes it or is then handed round to everybody.
enum class Finished { kStays, kGoesRound };

// The ring with arithmetic. The blocks [ends[b-1], ends[b]) of `stream` go round, and every rank adds its own
// input to what arrives, straight from the tensors. Position r finishes block r + 1 (modulo the size): this
// last hop also applies divisor and postscale, and writes the outputs. float16 and bfloat16 are rounded once
// per hop.
//
// An output may be the very memory of its input.
std::unique_ptr<StepMachine> MakeRingReduce(const Group& group, const CollectiveSpec& spec,
                                            PieceStream stream, const std::vector<int64_t>& ends,
                                            Finished finished);

}  // namespace hvd
