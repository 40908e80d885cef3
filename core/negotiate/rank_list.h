#pragma once

#include <string>
#include <vector>

#include "base/rank.h"

namespace hvd::negotiate {

// "rank 3", "ranks 0, 2", and of more than 16 the runs: "ranks 0-127, 130". Sorted ranks in; bounded text
// out.
std::string RankList(const std::vector<GlobalRank>& ranks);

}  // namespace hvd::negotiate
