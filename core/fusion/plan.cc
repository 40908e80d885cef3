#include "fusion/plan.h"

#include <algorithm>

namespace hvd::fusion {

namespace {

bool GoesAlone(const Ready& tensor, int64_t threshold) {
  // Adasum combines by the dot products of one tensor; a barrier has no data.
  const bool adasum = Reduces(tensor.kind) && tensor.op == ReduceOp::kAdasum;
  return adasum || tensor.kind == OpKind::kBarrier || threshold == 0 || tensor.bytes > threshold;
}

bool MayTravelTogether(const Ready& a, const Ready& b) {
  if (a.kind != b.kind || a.device != b.device) return false;
  if (Reduces(a.kind)) {
    return a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale &&
           a.postscale == b.postscale;
  }
  return a.kind != OpKind::kBroadcast || a.root == b.root;
}

// A group that may still take members.
struct Open {
  size_t group;
  const Ready* first;
  int64_t bytes;
};

}  // namespace

std::vector<std::vector<size_t>> Plan(const std::vector<Ready>& ready, int64_t threshold) {
  std::vector<std::vector<size_t>> groups;
  std::vector<Open> open;  // one for each set of parameters that travel together
  for (size_t i = 0; i < ready.size(); ++i) {
    const Ready& tensor = ready[i];
    if (GoesAlone(tensor, threshold)) {
      groups.push_back({i});
      continue;
    }
    auto group = std::find_if(open.begin(), open.end(), [&](const Open& other) {
      return MayTravelTogether(*other.first, tensor);
    });
    if (group == open.end()) {
      group = open.insert(open.end(), {groups.size(), &tensor, 0});
      groups.emplace_back();
    } else if (group->bytes + tensor.bytes > threshold) {
      *group = {groups.size(), &tensor, 0};
      groups.emplace_back();
    }
    groups[group->group].push_back(i);
    group->bytes += tensor.bytes;
  }
  return groups;
}

}  // namespace hvd::fusion
