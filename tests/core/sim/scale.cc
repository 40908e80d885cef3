// What negotiation costs jobs of any size, in virtual time. Collectives take none, and the program
// submits all of a step at one moment on all ranks: what is left is the protocol.

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/job.h"
#include "sim/rank.h"

namespace hvd::sim {

namespace {

constexpr int kRanksPerHost = 8;
constexpr Nanos kComputes = 1'000'000;
constexpr size_t kAlike = 12;  // steps before the one that departs
constexpr size_t kCached = 2;  // the first is told in full, and gives ids

Plan Training(int ranks, int tensors) {
  Plan plan;
  plan.computes = kComputes;
  plan.sets.resize(1);
  for (int rank = 0; rank < ranks; ++rank) plan.sets[0].members.push_back(rank);
  ProgramStep step;
  for (int tensor = 0; tensor < tensors; ++tensor) {
    plan.ops.push_back(
        {0, OpKind::kAllreduce, ReduceOp::kSum, "gradient." + std::to_string(tensor), 1, 0});
    step.push_back({static_cast<size_t>(tensor)});
  }
  plan.steps.assign(kAlike, step);
  plan.ops.push_back({0, OpKind::kAllreduce, ReduceOp::kSum, "another", 1, 0});
  step.back().op = plan.ops.size() - 1;
  plan.steps.push_back(step);
  plan.joins_at.assign(static_cast<size_t>(ranks), plan.steps.size());
  return plan;
}

Scale::Phase Phase(const std::vector<Ledger::StepCost>& costs, size_t step) {
  const Ledger::StepCost& cost = costs[step];
  return {static_cast<double>(cost.ended - cost.submitted) / kMicro,
          static_cast<double>(cost.messages), static_cast<double>(cost.most_messages),
          static_cast<double>(cost.most_frames)};
}

}  // namespace

Scale MeasureScale(int ranks, int tensors, const Network& network) {
  Shape shape;
  shape.ranks = ranks;
  shape.ranks_per_host = kRanksPerHost;
  shape.network = network;
  Job job(shape, Training(ranks, tensors), 1);
  std::vector<std::unique_ptr<Rank>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<Rank>(&job, rank));
  while (job.world.Next()) continue;
  Scale scale{ranks, tensors, network, {}, {}, {}, {}};
  const std::vector<Ledger::StepCost>& costs = job.ledger.costs();
  scale.cold = Phase(costs, 0);
  scale.cached = Phase(costs, kCached);
  scale.learned = Phase(costs, kAlike - 1);
  scale.departs = Phase(costs, kAlike);
  for (int rank = 0; rank < ranks; ++rank)
    scale.most_peers = std::max(scale.most_peers, job.links.PeersOf(rank));
  return scale;
}

}  // namespace hvd::sim
