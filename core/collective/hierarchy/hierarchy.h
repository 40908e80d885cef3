#pragma once

#include <memory>
#include <vector>

#include "base/collective.h"
#include "base/topology.h"
#include "collective/communicator.h"
#include "collective/piece_stream.h"
#include "collective/window/board.h"

namespace hvd {

// A process set on several hosts: shared memory among its members on one host, links to all.
struct Hierarchy {
  Board* board = nullptr;  // of this rank's host, with the members there in the order of Topology
  Communicator comm;       // of the whole set
  Topology topology;
};

// Who carries which part of a chunk between the hosts. A chunk is cut in lanes, as many as the
// largest host has members. On each host lane l is carried by local rank l modulo the local size:
// so all members of a host share the work, and a lane has one carrier on every host. A chunk's
// place and size are the same on every rank, whatever the shape of its host.
class Lanes {
 public:
  Lanes(const Topology& topology, Position self);

  int count() const { return count_; }
  int hosts() const { return static_cast<int>(carriers_.size()); }
  int own_host() const { return own_host_; }
  // Those that this rank carries; at least one.
  const std::vector<int>& own() const { return own_; }
  // The carrier's position in the set, and (of the own host) its local rank.
  int Carrier(int host, int lane) const {
    const std::vector<Position>& members = carriers_[static_cast<size_t>(host)];
    return members[static_cast<size_t>(lane) % members.size()].value();
  }
  int LocalCarrier(int lane) const { return lane % local_size_; }
  // Of each lane but the last of so much.
  int64_t Bytes(int64_t all) const { return LinesOfPart(all, count_); }

 private:
  std::vector<std::vector<Position>> carriers_;  // the members by host
  int own_host_;
  int local_size_;
  int count_ = 1;
  std::vector<int> own_;
};

// Composed per chunk: while one chunk travels between the hosts, the next is reduced within them.
// Of each chunk, rank r
//   copies its input into its staging                                          (kCopied),
//   reduces its lanes over the members of its host, in rank order,
//   exchanges them with the lanes' carriers on the other hosts, in the order of the hosts, and
//     finishes them in its staging                                             (kReduced),
//   copies all lanes from their carriers' staging to its outputs               (kTaken).
// So every result has one order of arithmetic and all ranks get the same bits, on every run.
// Floats of 16 and 8 bits are rounded once within the host and once between the hosts.
//
// How the carriers of a lane exchange it depends on its size and the number of hosts
// (links/plan.h). Between H hosts a large lane of n bytes costs each carrier 2 * n * (H - 1) / H
// bytes each way; what is small, and all that two hosts have, is sent whole, in fewer rounds.
std::unique_ptr<StepMachine> MakeHierarchicalAllreduce(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec);

// Reducescatter: each rank's part is reduced within every host by the carrier of that rank's lane,
// crosses from there to the rank, and is combined in the order of the hosts, as an allreduce
// does it. Small parts among a few ranks go directly. Between hosts a part of n bytes costs n each
// way for each other host.
std::unique_ptr<StepMachine> MakeHierarchicalReducescatter(const Hierarchy& hierarchy,
                                                           const CollectiveSpec& spec);

// Ragged allgather: every rank's part crosses once to each other host, from the rank itself, and is
// handed on there through shared memory by the rank that it came to. So between hosts every host
// receives what it lacks and no more, and all its ranks receive some of it.
std::unique_ptr<StepMachine> MakeHierarchicalAllgather(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec);

// Broadcast: the frames of the stream cross once to each other host, along a chain or a tree of
// hosts; the lanes' carriers take them in turn, and hand them on to their hosts.
std::unique_ptr<StepMachine> MakeHierarchicalBroadcast(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec);

}  // namespace hvd
