#pragma once

#include <memory>

#include "base/collective.h"
#include "base/step.h"
#include "collective/group.h"

namespace hvd {

// Allreduce over point-to-point links; the same bits on every rank, because each block is finished on one
// rank and its bytes are handed round.
//
// The blocks go round twice. First every rank adds its own part to what arrives, straight from the tensors;
// the last hop also applies divisor and postscale. Then the finished blocks go round.
// Up to kDirectBytes, or what the spec says up to kMostDirectBytes, everybody sends to everybody instead.
std::unique_ptr<StepMachine> MakeRingAllreduce(const Group& group, const CollectiveSpec& spec);

constexpr int64_t kDirectBytes = 4 << 10;
constexpr int64_t kMostDirectBytes = 64 << 10;

}  // namespace hvd
