#include "negotiate/rank_list.h"

namespace hvd::negotiate {
namespace {

constexpr size_t kListed = 16;

std::string Run(int first, int last) {
  if (first == last) return std::to_string(first);
  return std::to_string(first) + (last == first + 1 ? ", " : "-") + std::to_string(last);
}

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t runs = 0;
  for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    if (runs++ == kListed) return text + " and " + std::to_string(ranks.size() - begin) + " more";
    end = begin + 1;
    const bool in_runs = ranks.size() > kListed;
    while (in_runs && end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (begin > 0) text += ", ";
    text += Run(ranks[begin], ranks[end - 1]);
  }
  return text;
}

}  // namespace hvd::negotiate
