#include "negotiate/stall.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "negotiate/agreement.h"

namespace hvd::negotiate {
namespace {

constexpr size_t kOperations = 4;  // two lines each: what is stalled, and a hint
constexpr size_t kCandidates = 64;
constexpr size_t kLines = 12;

using Pending = std::vector<Unready>;

bool Has(const std::vector<GlobalRank>& ranks, GlobalRank rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

std::string Title(const Unready& operation) {
  const std::string kind = Name(operation.kind);
  return operation.name == kind ? kind : kind + " '" + Shown(operation.name) + "'";
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The operation that only absent ranks of `stalled` have submitted and whose name is the most
// alike: perhaps the same tensor under another name, or its neighbour.
const Unready* Namesake(const Unready& stalled, const Pending& pending) {
  const Unready* nearest = nullptr;
  size_t least = std::max<size_t>(2, stalled.name.size() / 4) + 1;
  for (size_t i = 0; i < pending.size() && i < kCandidates; ++i) {
    const Unready& other = pending[i];
    if (!std::includes(stalled.absent.begin(), stalled.absent.end(), other.ready.begin(),
                       other.ready.end()))
      continue;
    const size_t distance = EditDistance(stalled.name, other.name);
    if (distance >= least) continue;
    least = distance;
    nearest = &other;
  }
  return nearest;
}

std::string Stalled(const Unready& operation, Micros now) {
  return "  " + Title(operation) + ", " + std::to_string((now - operation.since) / 1000000) +
         " s: submitted by " + RankList(operation.ready) + ", not by " +
         RankList(operation.absent) + ".";
}

// What each absent rank has submitted that others have not: first by first, so that the ranks in
// step group.
std::string Instead(const Unready& stalled, const Pending& pending) {
  std::map<std::string, std::vector<GlobalRank>> groups;
  for (const GlobalRank rank : stalled.absent) {
    const auto other = std::find_if(pending.begin(), pending.end(),
                                    [&](const Unready& u) { return Has(u.ready, rank); });
    groups[other == pending.end() ? "" : Title(*other)].push_back(rank);
  }
  std::string text;
  size_t shown = 0;
  for (const auto& [what, ranks] : groups) {
    if (shown++ == 3) return text + " Others wait for other operations.";
    text += " " + RankList(ranks) + (ranks.size() == 1 ? " waits for " : " wait for ") +
            (what.empty() ? "no operation" : what) + ".";
  }
  return text;
}

std::string Hint(const Unready& stalled, const Pending& pending) {
  if (const Unready* namesake = Namesake(stalled, pending)) {
    return "    " + RankList(namesake->ready) + " submitted '" + Shown(namesake->name) +
           "' instead, whose name is the most like it.";
  }
  return "   " + Instead(stalled, pending);
}

std::string Summary(size_t stalled, Micros older_than) {
  return std::to_string(stalled) + (stalled == 1 ? " operation has" : " operations have") +
         " waited for at least " + std::to_string(older_than / 1000000) +
         " s because not all ranks have submitted " + (stalled == 1 ? "it:" : "them:");
}

// Who holds up everything that is stalled.
std::vector<GlobalRank> AbsentFromFirst(const Pending& pending, size_t stalled) {
  std::map<GlobalRank, size_t> absences;
  for (size_t i = 0; i < stalled; ++i) {
    for (const GlobalRank rank : pending[i].absent) ++absences[rank];
  }
  std::vector<GlobalRank> everywhere;
  for (const auto& [rank, count] : absences) {
    if (count == stalled) everywhere.push_back(rank);
  }
  return everywhere;
}

std::string Culprits(const Pending& pending, size_t stalled) {
  const std::vector<GlobalRank> everywhere = AbsentFromFirst(pending, stalled);
  if (everywhere.empty())
    return "  No single rank is missing from all of them: do the ranks run different steps of the "
           "program?";
  return "  All of them lack " + RankList(everywhere) + ".";
}

// The oldest come first.
size_t CountStalled(const Pending& pending, Micros now, Micros older_than) {
  size_t stalled = 0;
  while (stalled < pending.size() && now - pending[stalled].since >= older_than) ++stalled;
  return stalled;
}

}  // namespace

std::vector<GlobalRank> AbsentFromAll(const Pending& pending, Micros now, Micros older_than) {
  return AbsentFromFirst(pending, CountStalled(pending, now, older_than));
}

std::string StallReport(const Pending& pending, Micros now, Micros older_than) {
  const size_t stalled = CountStalled(pending, now, older_than);
  if (stalled == 0) return "";
  std::vector<std::string> lines{Summary(stalled, older_than)};
  for (size_t i = 0; i < std::min(stalled, kOperations); ++i) {
    lines.push_back(Stalled(pending[i], now));
    lines.push_back(Hint(pending[i], pending));
  }
  if (stalled > kOperations)
    lines.push_back("  ... and " + std::to_string(stalled - kOperations) + " more.");
  if (stalled > 1) lines.push_back(Culprits(pending, stalled));
  static_assert(1 + 2 * kOperations + 2 <= kLines);
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

std::string StallReminder(const Pending& pending, Micros now, Micros older_than) {
  const size_t stalled = CountStalled(pending, now, older_than);
  if (stalled == 0) return "";
  return std::to_string(stalled) +
         (stalled == 1 ? " operation still waits" : " operations still wait") +
         ", as reported before:" + Stalled(pending.front(), now).substr(1);
}

}  // namespace hvd::negotiate
