// What negotiation costs jobs of any size, in virtual time. Collectives take none, and the program
// submits all of a step at one moment on all ranks: what is left is the protocol.

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "collective/links/moves.h"
#include "sim/job.h"
#include "sim/rank.h"

namespace hvd::sim {

namespace {

constexpr int kRanksPerHost = 8;
constexpr int kFewHosts = 8;  // that are all linked from the start
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

// Drives the program's steps on all ranks, from the start of the job to its end.
void Run(Job* job) {
  std::vector<std::unique_ptr<Rank>> all;
  for (int rank = 0; rank < job->shape.ranks; ++rank)
    all.push_back(std::make_unique<Rank>(job, rank));
  while (job->world.Next()) continue;
}

Shape ShapeOf(int ranks, const Network& network) {
  Shape shape;
  shape.ranks = ranks;
  shape.ranks_per_host = kRanksPerHost;
  shape.network = network;
  return shape;
}

Scale::Phase Phase(const std::vector<Ledger::StepCost>& costs, size_t step) {
  const Ledger::StepCost& cost = costs[step];
  return {static_cast<double>(cost.ended - cost.submitted) / kMicro,
          static_cast<double>(cost.messages), static_cast<double>(cost.most_messages),
          static_cast<double>(cost.most_frames)};
}

// Around the circle of hosts, those at distances that are powers of two are linked for the data
// from the start.
bool IsLinked(int ahead, int hosts) {
  const int behind = hosts - ahead;
  return (ahead & (ahead - 1)) == 0 || (behind & (behind - 1)) == 0;
}

// With how many others a carrier exchanges its part of an allreduce of small tensors.
int MoreHosts(int self, int hosts) {
  constexpr int64_t kLaneBytes = 512;
  const ExchangePlan plan = CheapestPlan(hosts, kLaneBytes, LinkCosts{});
  std::set<int> more;
  for (const Move& move : PlanMoves(plan, hosts, self, kLaneBytes, 4).list) {
    std::vector<Parcel> parcels = move.out;
    parcels.insert(parcels.end(), move.in.begin(), move.in.end());
    for (const Parcel& parcel : parcels) {
      const int ahead = (parcel.member - self + hosts) % hosts;
      if (!IsLinked(ahead, hosts)) more.insert(ahead);
    }
  }
  return static_cast<int>(more.size());
}

}  // namespace

Scale MeasureScale(int ranks, int tensors, const Network& network) {
  Job job(ShapeOf(ranks, network), Training(ranks, tensors), 1);
  Run(&job);
  Scale scale{ranks, tensors, network, {}, {}, {}, {}};
  const int hosts = (ranks + kRanksPerHost - 1) / kRanksPerHost;
  for (int host = 0; hosts > kFewHosts && host < hosts; ++host)
    scale.more_data_links = std::max(scale.more_data_links, MoreHosts(host, hosts));
  const std::vector<Ledger::StepCost>& costs = job.ledger.costs();
  scale.cold = Phase(costs, 0);
  scale.cached = Phase(costs, kCached);
  scale.learned = Phase(costs, kAlike - 1);
  scale.departs = Phase(costs, kAlike);
  for (int rank = 0; rank < ranks; ++rank)
    scale.most_peers = std::max(scale.most_peers, job.links.PeersOf(rank));
  return scale;
}

Scale::Phase MeasureFirstStep(int ranks, int tensors, const Network& network) {
  Plan plan = Training(ranks, tensors);
  plan.steps.resize(1);
  plan.joins_at.assign(static_cast<size_t>(ranks), plan.steps.size());
  Job job(ShapeOf(ranks, network), std::move(plan), 1);
  Run(&job);
  return Phase(job.ledger.costs(), 0);
}

}  // namespace hvd::sim
