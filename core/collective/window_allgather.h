#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/board.h"

namespace hvd {

// Ragged allgather and broadcast among the ranks of a host: both carry parts of known sizes from their
// owners to everybody. Parts of at most Board::inline_bytes() travel in slots; else every owner streams its
// part through its staging in chunks and everybody copies them out. An own part is copied straight.
//
// A large one is complete only when every member has taken the last chunk: who reports success knows that
// all will.
std::unique_ptr<StepMachine> MakeWindowAllgather(Board* board, const CollectiveSpec& spec);
std::unique_ptr<StepMachine> MakeWindowBroadcast(Board* board, const CollectiveSpec& spec);

}  // namespace hvd
