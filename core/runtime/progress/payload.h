#pragma once

#include <cstddef>
#include <vector>

#include "negotiate/message.h"
#include "runtime/control/follower.h"
#include "runtime/control/gate.h"

// What the vote for a small batch carries: the inputs of its tensors, in the order of the batch,
// each from a multiple of Gate::kPayloadUnit on.
namespace hvd {

// What the tensors of one operation take.
size_t PayloadBytes(const negotiate::Request& request);
inline size_t PayloadBytes(int64_t tensor_bytes) {
  const auto bytes = static_cast<size_t>(tensor_bytes);
  return (bytes + Gate::kPayloadUnit - 1) / Gate::kPayloadUnit * Gate::kPayloadUnit;
}

// This rank's, of the next batch, of which it has submitted all; `bytes` in all.
void Pack(const Follower& follower, size_t bytes, std::vector<std::byte>* payload);

// Whether an operation of that batch writes to memory that a later one of it reads: their order
// would be lost if all were read at once.
bool ReadsItsOwnResults(const Follower& follower);

}  // namespace hvd
