#pragma once

#include <memory>

#include "base/collective.h"
#include "collective/piece_stream.h"
#include "collective/window/board.h"

// The collectives among the ranks of a host, over a Board. See CollectiveSpec for what each is
// asked.
//
// What is small lies whole in the slots of its owners, a flag each; what is larger goes through
// their staging in chunks. A large one is complete only when every member has taken the last chunk:
// who reports success knows that all will.
namespace hvd {

// Every element is combined in rank order, so all ranks get the same bits, on every run.
//
// Up to Board::inline_bytes(), or what the spec says as far as a slot holds it: everybody puts its
// input into its slot and reduces all slots itself.
//
// Larger: the stream of pieces is cut in chunks, each chunk in as many slices as there are ranks.
// Rank r
//   copies its input of the others' slices into its staging            (kCopied),
//   reduces slice r, its own input straight from the tensor, the others' from their staging, into
//   its
//     staging and its own output in one pass                            (kReduced),
//   copies the others' slices out of their staging                      (kTaken).
// The phases wait on flags of their own instead of a barrier, so copying in chunk k+1 overlaps
// reducing chunk k, and the staging stays in cache. To read the others' tensors where they lie
// (process_vm_readv) saves a copy, but was faster for one tensor of 4 to 16 MiB alone: the system
// pins each page, and 100 MiB in 161 tensors, which are in no cache, took half as long again.
std::unique_ptr<StepMachine> MakeWindowAllreduce(Board* board, const CollectiveSpec& spec);

// Every rank reduces its own part of all inputs, in rank order, so its bits are those of an
// allreduce.
//
// Up to kSlotBytes: everybody puts its whole input into its slot and reduces its part of all slots.
//
// Larger: each part is a stream, cut in blocks of one size; chunk k of a rank's staging holds block
// k of every other rank's part. Rank r
//   copies block k of the others' parts into its staging                (kCopied),
//   reduces block k of its own part, its own input straight from the tensor, the others' from their
//     staging, into its output                                           (kTaken).
// Nothing is handed back through the staging, so kReduced is passed at once. Copying in chunk k+1
// overlaps reducing chunk k.
//
// An output may lie in its own input, at the place of the own part: it is written only where, and
// when, the own input has been read.
std::unique_ptr<StepMachine> MakeWindowReducescatter(Board* board, const CollectiveSpec& spec);

// Ragged allgather and broadcast: both carry parts of known sizes from their owners to everybody.
// Parts of at most Board::inline_bytes() travel in slots; else every owner streams its part through
// its staging in chunks and everybody copies them out. An own part is copied straight.
std::unique_ptr<StepMachine> MakeWindowAllgather(Board* board, const CollectiveSpec& spec);
std::unique_ptr<StepMachine> MakeWindowBroadcast(Board* board, const CollectiveSpec& spec);

// What rank s sends is one stream: its parts to s+1, s+2, ... s-1, end to end. So at any time the
// ranks send to different ones, and long copies stay long however ragged the sizes are.
//
// Streams of at most Board::inline_bytes() lie whole in the senders' slots. Else every rank stages
// its stream in chunks and takes from each chunk of the others what is for it. The own part is
// copied straight.
std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec);

// What is small and has arithmetic: everybody puts the stream's inputs into its slot, and reduces
// [begin, end) of all slots into the stream's outputs.
std::unique_ptr<StepMachine> MakeInlineReduce(Board* board, const Reduction& reduction,
                                              PieceStream stream, int64_t begin, int64_t end);

// Done when every member has begun the same barrier.
std::unique_ptr<StepMachine> MakeWindowBarrier(Board* board);

}  // namespace hvd
