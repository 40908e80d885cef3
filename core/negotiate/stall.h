#pragma once

#include <string>
#include <vector>

#include "negotiate/sequencer.h"

namespace hvd::negotiate {

// What has waited for at least `older_than`, which ranks are absent, and what those wait for instead.
// Empty when nothing has; at most 12 lines.
std::string StallReport(const Sequencer& sequencer, Micros now, Micros older_than);

// The ranks that are absent from everything that has waited so long; empty when none is.
std::vector<GlobalRank> AbsentFromAll(const Sequencer& sequencer, Micros now, Micros older_than);

}  // namespace hvd::negotiate
