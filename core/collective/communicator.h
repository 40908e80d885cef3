#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/rank.h"
#include "collective/links/plan.h"
#include "collective/scratch.h"
#include "transport/transport.h"

namespace hvd {

// A process set that speaks over a Transport. Inside this layer there are no ranks but positions in
// the set, plain numbers because schedules calculate with them; here they become ranks of the job.
//
// Whoever advances its machines also calls transport->Progress(); the machines only post and look.
//
// Every machine posts its receives without waiting for anything but the arrival of earlier ones on
// the same link and, where its memory is bounded, their being sent on. So no frame stays at the
// head of a link for long, and overlapping sets may share links (transport/inbox).
struct Communicator {
  Transport* transport = nullptr;
  uint32_t set = 0;
  Members members;
  Position position;  // of this rank
  std::shared_ptr<ScratchPool> scratch;
  LinkCosts costs = {};  // what algorithms are chosen by; equal on every member

  int size() const { return members.size(); }
  int rank() const { return position.value(); }
  // Positions wrap around.
  GlobalRank Global(int place) const { return members[Position((place + size()) % size())]; }

  void Send(int place, uint64_t sequence, uint32_t chunk, const void* data, size_t bytes,
            Transfer* transfer) const {
    transport->Send(Global(place), {set, sequence, chunk}, data, bytes, transfer);
  }
  void Recv(int place, uint64_t sequence, uint32_t chunk, void* data, size_t bytes,
            Transfer* transfer) const {
    transport->Recv(Global(place), {set, sequence, chunk}, data, bytes, transfer);
  }

  // A peer decides how many bytes arrive; anything but the agreed number is an error.
  Status Check(const Transfer& received, size_t agreed, int place) const {
    if (received.bytes == agreed) return Status::Ok();
    return Status::Aborted(Name(Global(place)) + " sent " + std::to_string(received.bytes) +
                           " bytes where the operation has " + std::to_string(agreed));
  }
};

constexpr int64_t kFrameBytes = 128 << 10;  // how collectives cut long messages
constexpr size_t kInFlight = 4;             // frames posted at once in one direction

}  // namespace hvd
