#pragma once

#include <string>
#include <vector>

#include "base/rank.h"
#include "base/types.h"
#include "negotiate/message.h"

namespace hvd::negotiate {

// A tensor that some members have announced and others have not.
struct Unready {
  std::string name;
  OpKind kind = OpKind::kAllreduce;
  Micros since = 0;
  std::vector<GlobalRank> ready;
  std::vector<GlobalRank> absent;

  bool operator==(const Unready& other) const {
    return name == other.name && since == other.since && ready == other.ready;
  }
};

// Of what is pending, the oldest first.

// What has waited for at least `older_than`, which ranks are absent, and what those wait for
// instead. Empty when nothing has; at most 12 lines.
std::string StallReport(const std::vector<Unready>& pending, Micros now, Micros older_than);

// One line, for a stall that has been reported and is as it was; empty likewise.
std::string StallReminder(const std::vector<Unready>& pending, Micros now, Micros older_than);

// The ranks that are absent from everything that has waited so long; empty when none is.
std::vector<GlobalRank> AbsentFromAll(const std::vector<Unready>& pending, Micros now,
                                      Micros older_than);

}  // namespace hvd::negotiate
