#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "runtime/engine/engine.h"

namespace hvd {

// Which ranks each process set has. Ids are given in the order of adding and never again, to sets
// that all ranks of the job add by each rank for itself, from 0 on; to those that their members
// alone make by the first of these, from kFirstOwn on, each rank in a range of its own. Thread
// safe.
class SetRegistry {
 public:
  explicit SetRegistry(GlobalRank rank) : rank_(rank) {}

  // How many of either kind there are at a time. Each has mappings of its own, of which the kernel
  // allows a process 65,530.
  static constexpr size_t kMostSets = 1 << 14;

  Status Add(Members members, uint32_t* id);
  static constexpr uint32_t kFirstOwn = kFirstOwnSet;
  // The next id that this rank, of so many in the job, gives to a set that its members make.
  Status Number(int job_size, uint32_t* id);
  // Whether that rank may have given such an id.
  static bool MayHaveGiven(GlobalRank first, int job_size, uint32_t id);
  Status AddAs(uint32_t id, Members members);
  void Remove(uint32_t id);

  // While closed, nothing can be submitted to a set. False when there is none.
  bool SetClosed(uint32_t id, bool closed);
  // For good. False when there is none, or it is closed.
  bool Close(uint32_t id);

  // Whether this rank may submit to the set; if so, how many members it has.
  Status Admits(uint32_t id, size_t* members) const;
  bool Has(uint32_t id, GlobalRank rank) const;
  Members MembersOf(uint32_t id) const;
  // The ids of the sets that this rank may submit to, ascending.
  std::vector<uint32_t> Included() const;

 private:
  struct Set {
    Members members;
    bool closed = false;
  };

  const GlobalRank rank_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<uint32_t, Set> sets_;
  uint32_t next_ = 0;
  uint32_t named_ = 0;  // so many sets
  size_t own_ = 0;      // of sets_, that their members have made: other ranks may have others
};

}  // namespace hvd
