#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/operation/entry.h"

namespace hvd {

// What one rank brings to a meeting, in which the members of a process set make it by themselves.
struct MeetingOptions {
  GlobalRank rank;
  Members members;
  Members companions;              // this rank and the members with whom it shares memory
  std::vector<GlobalRank> firsts;  // of the companions of each member
  uint32_t order = 0;              // a number of the order in which this rank has the members
  int64_t timeout_us = 0;          // that this rank waits for the others

  // How many meetings of these members this rank has been at before.
  std::function<uint64_t()> number;
  // Its own part. Of the first member: a number for the set, that no other has.
  std::function<Status(uint32_t* id)> name;
  // Of the others: whether it may have given that number.
  std::function<bool(uint32_t id)> may_have_named;
  // Of the first of its companions: memory for them, and where it lies.
  std::function<Status(uint32_t id, std::string* place)> reserve;
  // The set, as it is on this rank (kTimeout: that comes too late); and that there is none after
  // all: of who has prepared it, and of who has reserved the place.
  std::function<Status(uint32_t id, const std::string& place)> prepare;
  std::function<void(uint32_t id)> discard;
  std::function<void(const std::string& place)> close;
  // Sends a note, or receives one of equal length. kTimeout: not in time, or, before the deadline,
  // that the program has been interrupted; other errors end the job.
  std::function<Status(const PeerOperation& peer, std::string* note, int64_t deadline_us)> exchange;
};

// Collective among the members, and blocking. Every member has made its part of the set, or every
// member gets an error, which names the rank that is why. All must have the members in one order.
//
// Who comes too late finds that the meeting is over, and goes to the next one for as long as it has
// time: so all are at the same one again when they try again.
//
// Five legs of messages: that it is here, from the first of each group of companions to the others;
// the number, from the first member to the first of each group; the place, from there to the others
// of the group; how each has fared, to the first member; its verdict, to all.
//
// Who is interrupted gives up at once, and says so in all legs that are left. The others get an
// error that names it, unless it had said yes before: then they have a set that it does not use.
Status Meet(const MeetingOptions& options, uint32_t* id);

}  // namespace hvd
