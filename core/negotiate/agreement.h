#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rank.h"
#include "negotiate/message.h"

namespace hvd::negotiate {

// One description of an operation and the members that sent it.
struct Sent {
  const Request* request;
  std::vector<GlobalRank> ranks;
};

// Why members that sent these different descriptions of one operation cannot run it: in what they
// disagree first, and which ranks sent what. Never empty. `ordinal` as in Announcement.
std::string Disagreement(std::vector<Sent> sent, uint64_t ordinal);

// Why an operation that all members describe alike can run on none of them; empty when it can.
std::string Objection(const Request& request, uint64_t ordinal, const Members& members);

// Why a broadcast cannot run although its root is a member: the root has joined instead of
// announcing it.
std::string RootHasJoined(const Request& request, uint64_t ordinal);

// "rank 3", "ranks 0, 2", and of more than 16 the runs: "ranks 0-127, 130". Sorted ranks in;
// bounded text out.
std::string RankList(const std::vector<GlobalRank>& ranks);

}  // namespace hvd::negotiate
