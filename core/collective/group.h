#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/scratch.h"
#include "transport/transport.h"

namespace hvd {

// A process set that speaks over a Transport. Whoever advances its machines also calls
// transport->Progress(); the machines only post and look.
//
// Every machine posts its receives without waiting for anything but the arrival of earlier ones and, where
// its memory is bounded, their being sent on. So no frame stays at the head of a link for long, and
// overlapping sets may share links (transport/inbox).
struct Group {
  Transport* transport = nullptr;
  uint32_t set = 0;
  std::vector<int> members;  // global ranks, by position
  int rank = 0;              // own position
  std::shared_ptr<ScratchPool> scratch;

  int size() const { return static_cast<int>(members.size()); }
  // Positions wrap around.
  int Global(int position) const { return members[static_cast<size_t>((position + size()) % size())]; }

  void Send(int position, uint64_t sequence, uint32_t chunk, const void* data, size_t bytes,
            Transfer* transfer) const {
    transport->Send(Global(position), {set, sequence, chunk}, data, bytes, transfer);
  }
  void Recv(int position, uint64_t sequence, uint32_t chunk, void* data, size_t bytes,
            Transfer* transfer) const {
    transport->Recv(Global(position), {set, sequence, chunk}, data, bytes, transfer);
  }

  // A peer decides how many bytes arrive; anything but the agreed number is an error.
  Status Check(const Transfer& received, size_t agreed, int position) const {
    if (received.bytes == agreed) return Status::Ok();
    return Status::Aborted("rank " + std::to_string(Global(position)) + " sent " +
                           std::to_string(received.bytes) + " bytes where the operation has " +
                           std::to_string(agreed));
  }
};

constexpr int64_t kFrameBytes = 128 << 10;  // how collectives cut long messages
constexpr size_t kInFlight = 4;             // frames posted at once in one direction

}  // namespace hvd
