#include "negotiate/rank_list.h"

namespace hvd::negotiate {
namespace {

constexpr size_t kListed = 16;

std::string Run(GlobalRank first, GlobalRank last) {
  const std::string from = std::to_string(first.value());
  if (first == last) return from;
  return from + (last.value() == first.value() + 1 ? ", " : "-") + std::to_string(last.value());
}

}  // namespace

std::string RankList(const std::vector<GlobalRank>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t runs = 0;
  for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    if (runs++ == kListed) return text + " and " + std::to_string(ranks.size() - begin) + " more";
    end = begin + 1;
    const bool in_runs = ranks.size() > kListed;
    while (in_runs && end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    if (begin > 0) text += ", ";
    text += Run(ranks[begin], ranks[end - 1]);
  }
  return text;
}

}  // namespace hvd::negotiate
