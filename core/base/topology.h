#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/positions.h"
#include "base/rank.h"

namespace hvd {

// Where the members of a process set run: one value, made once for each set and generation, equal
// on all of them. Whoever asks "are we all on one host" asks it. Hosts are numbered in the order of
// their first members, the members of a host, its local ranks, in the order of their positions.
class Topology {
 public:
  // A set without members.
  Topology() = default;
  // `hosts` holds for each member a number that those of one host have in common, and nobody else
  // has. `hosts_share_memory`: whether the members of a host share memory, or have links only.
  // `names`: of the hosts, for people; empty, or one for each.
  Topology(const std::vector<int>& hosts, bool hosts_share_memory,
           std::vector<std::string> names = {});
  static Topology OneHost(int size, bool shares_memory) {
    return {std::vector<int>(static_cast<size_t>(size), 0), shares_memory};
  }

  // Of a process set of this job: `this` is that of all ranks.
  Topology Of(const Members& members) const;
  // For messages, where `this` is the topology of all ranks: "rank 3 on node2", or "rank 3" where
  // all are on one host.
  std::string Describe(GlobalRank rank) const;
  std::string DescribeHost(GlobalRank rank) const;  // "node2"
  bool OnOneHost(GlobalRank a, GlobalRank b) const;

  int size() const { return static_cast<int>(places_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }
  int HostOf(Position member) const { return places_[member.index()].host; }
  // The members of a host, ascending.
  const std::vector<Position>& OnHost(int host) const {
    return members_[static_cast<size_t>(host)];
  }

  // The place of a member among those of its host.
  int LocalRank(Position member) const { return places_[member.index()].local_rank; }
  int LocalSize(Position member) const { return static_cast<int>(OnHost(HostOf(member)).size()); }
  // The place of its host among those that have a member of its local rank.
  int CrossRank(Position member) const { return places_[member.index()].cross_rank; }
  int CrossSize(Position member) const {
    return cross_sizes_[static_cast<size_t>(LocalRank(member))];
  }

  // A member's place in the tree over which the set negotiates. The first member of each host is
  // the parent of the others there. Of few hosts the first ones are children of the set's first
  // member: one hop is faster than two. Of more than `few` they are a binomial tree of their own,
  // so that no member has many children; a distance between two hosts is a power of two then. Where
  // hosts share no memory each member is a host by itself.
  struct TreePlace {
    Position parent;  // nobody's at the root, which is the first member
    struct Child {
      Position at;
      Positions below;  // it and all below it
    };
    std::vector<Child> children;  // itself first; or none, at a leaf
  };
  static constexpr int kFewHosts = 8;
  TreePlace TreePlaceOf(Position member, int few = kFewHosts) const;

  bool ShareMemory(Position a, Position b) const {
    return hosts_share_memory_ && HostOf(a) == HostOf(b);
  }
  // Whether those of one host do, however many hosts there are.
  bool hosts_share_memory() const { return hosts_share_memory_; }
  bool AllShareMemory() const { return hosts_share_memory_ && hosts() <= 1; }

 private:
  struct Place {
    int host;
    int local_rank;
    int cross_rank;
  };

  int TreeHosts() const { return hosts_share_memory_ ? hosts() : size(); }
  std::vector<Position> TreeHost(int host) const;
  Positions BelowHosts(int first, int end) const;

  std::vector<Place> places_;                   // by position
  std::vector<std::vector<Position>> members_;  // by host
  std::vector<int> cross_sizes_;                // by local rank
  std::vector<std::string> names_;              // by host; empty: not known
  bool hosts_share_memory_ = false;
};

// Names the running kernel and the process namespace on it: a process id means the same to two
// processes only if this is equal for both. 0: not known, and equal to nothing. `root` is put
// before every path.
uint64_t HostIdentity(const std::string& root = "");

}  // namespace hvd
