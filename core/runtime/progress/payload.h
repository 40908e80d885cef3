#pragma once

#include <cstddef>
#include <vector>

#include "negotiate/marks.h"
#include "negotiate/message.h"
#include "runtime/control/member.h"

// What a mark carries of a small batch: the inputs of its tensors, in the order of the batch, each
// from a multiple of kPayloadUnit on.
namespace hvd {

// What the tensors of one operation take.
size_t PayloadBytes(const negotiate::Request& request);
inline size_t PayloadBytes(int64_t tensor_bytes) {
  constexpr size_t kUnit = negotiate::kPayloadUnit;
  return (static_cast<size_t>(tensor_bytes) + kUnit - 1) / kUnit * kUnit;
}

// This rank's, of the next batch, of which it has submitted all; `bytes` in all.
void Pack(const Epoch& epoch, size_t bytes, std::byte* payload);

// Whether an operation of that batch writes to memory that a later one of it reads: their order
// would be lost if all were read at once.
bool ReadsItsOwnResults(const Epoch& epoch);

}  // namespace hvd
