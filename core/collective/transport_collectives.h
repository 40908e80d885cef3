#pragma once

#include <memory>

#include "base/collective.h"
#include "collective/communicator.h"

// The collectives over point-to-point links. See CollectiveSpec for what each is asked.
namespace hvd {

// Up to so many bytes the parts of a reducescatter go from everybody to everybody, and so does the
// input of an allreduce where autotune begins.
constexpr int64_t kDirectBytes = 4 << 10;
// The most that CollectiveSpec::direct_bytes can ask for.
constexpr int64_t kMostDirectBytes = 64 << 10;

// Allreduce with the same bits on every rank: by the exchange (links/plan.h) or the ring that costs
// least for the size and the number of ranks. Where the spec says up to which size everybody gets
// everybody's input whole, up to kMostDirectBytes, that decides first.
std::unique_ptr<StepMachine> MakeLinkAllreduce(const Communicator& comm,
                                               const CollectiveSpec& spec);
// The exchange of so much; null: a ring.
std::unique_ptr<ExchangePlan> PlanOfAllreduce(const Communicator& comm, int64_t bytes,
                                              int64_t direct_bytes);

// The block that position `rank` receives from its predecessor in step `step` of a ring; it sends
// in step s what it received in step s-1, and its own block first.
inline int RingBlock(int rank, int step, int size) {
  return ((rank - 1 - step) % size + size) % size;
}

// The blocks go round a ring twice. First every rank adds its own part to what arrives, straight
// from the tensors; the last hop also applies divisor and postscale. Then the finished blocks go
// round.
std::unique_ptr<StepMachine> MakeRingAllreduce(const Communicator& comm,
                                               const CollectiveSpec& spec);

// Reducescatter: the parts go round a ring once. When no part has more than kDirectBytes it is a
// direct one instead. An output may lie in its own input, at the place of the own part.
std::unique_ptr<StepMachine> MakeRingReducescatter(const Communicator& comm,
                                                   const CollectiveSpec& spec);

// Ragged allgather: every rank's part goes round the ring once.
std::unique_ptr<StepMachine> MakeRingAllgather(const Communicator& comm,
                                               const CollectiveSpec& spec);

// Everybody sends each rank its part of the input and reduces what arrives in rank order: one
// latency, for small sizes.
std::unique_ptr<StepMachine> MakeDirectReducescatter(const Communicator& comm,
                                                     const CollectiveSpec& spec);

// Broadcast along a binomial tree, cut in frames: a node passes a frame on as soon as it has it.
std::unique_ptr<StepMachine> MakeTreeBroadcast(const Communicator& comm,
                                               const CollectiveSpec& spec);

// Alltoall: every rank sends to every other at the same time, cut in frames, from the next rank on.
//
// Why sets that share links do not wait for each other in a circle. The receives of one link wait
// for earlier frames of that link alone. So a frame f of this set can be stuck at the head of a
// link only because its receiver is still in an earlier operation, where it misses a frame g of
// another sender. Then g was posted before f: no member ends an alltoall before everybody has
// posted all sends of it, because the last frame on each link is held back until all others are
// posted, goes out to everybody at the same time, and is sent even where there is no data. If g is
// stuck in turn, it is behind a frame posted before it, and so on: every frame that another waits
// for is older, and the oldest moves.
std::unique_ptr<StepMachine> MakePairwiseAlltoall(const Communicator& comm,
                                                  const CollectiveSpec& spec);

// Barrier in ceil(log2 size) rounds: in round k everybody tells the rank 2^k places on, and hears
// from the one 2^k places before (Hensgen, Finkel and Manber 1988).
std::unique_ptr<StepMachine> MakeDisseminationBarrier(const Communicator& comm, uint64_t sequence);

}  // namespace hvd
