#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Alltoall among the ranks of a host, see CollectiveSpec::rank_bytes. What rank s sends is one stream: its
// parts to s+1, s+2, ... s-1, end to end. So at any time the ranks send to different ones, and long copies
// stay long however ragged the sizes are.
//
// Streams of at most Board::inline_bytes() lie whole in the senders' slots. Else every rank stages its
// stream in chunks and takes from each chunk of the others what is for it. The own part is copied straight.
//
// A large one is complete only when every member has taken the last chunk: who reports success knows that
// all will.
std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
