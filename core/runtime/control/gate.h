#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "base/topology.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

// The votes of a process set whose members follow a schedule: one gate before each batch, numbered
// from 1 on for as long as the set lives. A batch runs if all members vote that it may; each member
// finds out by itself, at the same gate. A vote is never withdrawn. Never waits.
//
// A vote that the batch may run carries the member's data of a small batch, its payload. So who has
// heard all votes has everybody's data, and needs nothing more of the others.
class Gate {
 public:
  enum class Verdict {
    kOpen,      // some member has not voted
    kPassed,    // all vote that the batch may run
    kPoisoned,  // some member votes that it must not: this one's vote cannot change that any more
  };

  virtual ~Gate() = default;

  // How large a member's payload may be, a multiple of kPayloadUnit; equal on every member.
  virtual size_t most_payload() const = 0;
  static constexpr size_t kPayloadUnit = 8;
  static constexpr size_t kMostPayload = 512;       // of one member
  static constexpr size_t kMostPayloads = 4 << 10;  // of all
  static constexpr size_t MostPayload(size_t members) {
    return std::min(kMostPayload, kMostPayloads / members / kPayloadUnit * kPayloadUnit);
  }

  // The payload of each vote at the gate that is next has so many bytes, a multiple of
  // kPayloadUnit: equal on every member, and said before anything else at a gate.
  virtual void Expect(size_t payload_bytes) = 0;

  // At the gate that is next, once. `payload`: of the length that is expected; of a vote that the
  // batch must not run nothing is read.
  virtual void Vote(bool may_run, const std::byte* payload) = 0;
  virtual bool voted() const = 0;

  // Of the gate that is next; never kPassed before this member has voted.
  virtual Verdict Look(bool* moved) = 0;

  // What a member's vote has carried, at a gate that is passed, until Advance.
  virtual const std::byte* PayloadOf(Position member) const = 0;

  // This member has voted at a gate that is passed or poisoned, and goes on to the one behind it.
  virtual void Advance() = 0;

  virtual uint64_t number() const = 0;  // of the gate that is next

  // Whether votes reach some members by way of others: then these have to look now and then, also
  // while they have nothing to vote for.
  virtual bool relays() const { return false; }

  // Who was the last to vote at a gate that has just passed, and since when the others had all
  // waited for it; nobody where members do not share a clock.
  struct Last {
    Position member;
    int64_t since_us = 0;
    int64_t voted_us = 0;
  };
  virtual Last last() const { return {}; }

  // The member whose votes cannot be right; nobody while all is well.
  virtual Position corrupt() const = 0;
  virtual bool idle() const = 0;  // nothing waits to be sent
};

// What a gate takes of a window: of one host, and of several.
size_t WindowGateBytes();
size_t HostGateBytes();

// Votes through flags in shared memory. A member that has not voted is woken by nobody's vote but
// one that poisons: it computes.
Status MakeWindowGate(Window* window, std::unique_ptr<Gate>* gate);

// Votes over links. Few members tell each other directly; more of them in ceil(log2(members))
// rounds (dissemination, as in a barrier: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for
// Barrier Synchronization", 1988). `weights`: a member's payload is that of so many; empty: of one.
std::unique_ptr<Gate> MakeTransportGate(Transport* transport, uint32_t set, Members members,
                                        std::vector<int> weights = {});

// Of several hosts, whose members share memory: those of a host vote through flags of `window`, and
// its first member votes for all of them over links, as above.
Status MakeHostGate(Window* window, Transport* transport, uint32_t set, const Members& members,
                    const Topology& topology, std::unique_ptr<Gate>* gate);

}  // namespace hvd
