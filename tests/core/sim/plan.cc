#include "sim/plan.h"

#include <algorithm>
#include <map>

#include "negotiate/message.h"

namespace hvd::sim {

namespace {

constexpr OpKind kKinds[] = {OpKind::kAllreduce,     OpKind::kAllreduce, OpKind::kAllreduce,
                             OpKind::kAllgather,     OpKind::kBroadcast, OpKind::kAlltoall,
                             OpKind::kReducescatter, OpKind::kBarrier};

size_t Index(uint64_t number) { return static_cast<size_t>(number); }

int DrawRank(Random* random, int ranks) {
  return static_cast<int>(random->Below(static_cast<uint64_t>(ranks)));
}

std::vector<Set> DrawSets(Random* random, int ranks) {
  std::vector<Set> sets(1 + Index(random->Below(3)));
  for (int rank = 0; rank < ranks; ++rank) {
    sets[0].members.push_back(rank);
    for (size_t s = 1; s < sets.size(); ++s) {
      const bool never_empty = rank == static_cast<int>(s) % ranks;
      if (never_empty || random->OneIn(2)) sets[s].members.push_back(rank);
    }
  }
  return sets;
}

Op DrawOp(Random* random, const std::vector<Set>& sets, size_t number) {
  Op op;
  op.set = Index(random->Below(sets.size()));
  op.kind = kKinds[random->Below(std::size(kKinds))];
  op.reduce_op = random->OneIn(2) ? ReduceOp::kSum : ReduceOp::kMin;
  if (!random->OneIn(4)) op.name = std::to_string(number);
  op.rows = static_cast<int64_t>(random->Below(5));
  if (op.kind != OpKind::kAlltoall && random->OneIn(4)) op.tensors = 1 + Index(random->Below(3));
  const std::vector<int>& members = sets[op.set].members;
  op.root = members[Index(random->Below(members.size()))];
  return op;
}

// Shapes of steps that follow each other, each for a while, or two of them in turns, as in training
// and validation. Now and then a rank asks for something else, or a step is cut short.
std::vector<ProgramStep> DrawSteps(Random* random, size_t ops, int ranks, bool waits) {
  std::vector<ProgramStep> shapes(1 + Index(random->Below(3)));
  for (ProgramStep& shape : shapes) {
    for (size_t op = 0; op < ops; ++op) {
      if (!random->OneIn(3)) shape.push_back({op});
    }
    if (shape.empty()) shape.push_back({0});
  }
  std::vector<ProgramStep> steps;
  for (uint64_t phase = 1 + random->Below(4); phase > 0; --phase) {
    const size_t first = Index(random->Below(shapes.size()));
    const size_t other = random->OneIn(3) ? Index(random->Below(shapes.size())) : first;
    const uint64_t repeats = 1 + random->Below(12);
    for (uint64_t i = 0; i < repeats; ++i) {
      ProgramStep step = shapes[i % 2 == 0 ? first : other];
      if (random->OneIn(16)) step.resize(1 + Index(random->Below(step.size())));
      if (random->OneIn(16)) {
        step[Index(random->Below(step.size()))].odd = DrawRank(random, ranks);
      }
      if (random->OneIn(16)) {
        step[Index(random->Below(step.size()))].tells = DrawRank(random, ranks);
      }
      if (random->OneIn(8)) {
        step[Index(random->Below(step.size()))].longer = DrawRank(random, ranks);
      }
      if (waits && random->OneIn(3)) step[Index(random->Below(step.size()))].waits = true;
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

}  // namespace

bool Plan::Has(const Op& op, int rank, size_t step) const {
  const std::vector<int>& members = sets[op.set].members;
  return std::binary_search(members.begin(), members.end(), rank) &&
         (step < joins_at[static_cast<size_t>(rank)] || step >= resumes_at);
}

std::vector<int> Plan::Present(const Op& op, size_t step) const {
  std::vector<int> present;
  for (const int rank : sets[op.set].members) {
    if (Has(op, rank, step)) present.push_back(rank);
  }
  return present;
}

bool Plan::Fails(const Submission& submission, size_t step) const {
  const Op& op = ops[submission.op];
  if (NoticeIn(submission, step) != 0) return true;
  if (op.kind == OpKind::kBroadcast && !Has(op, op.root, step)) return true;
  if (submission.odd < 0 || op.kind == OpKind::kBarrier) return false;
  return Has(op, submission.odd, step) && Present(op, step).size() > 1;
}

uint8_t NoticeOf(int rank) { return static_cast<uint8_t>(2 << rank % 7); }

uint8_t Plan::NoticeIn(const Submission& submission, size_t step) const {
  const Op& op = ops[submission.op];
  if (submission.tells < 0 || !Has(op, submission.tells, step)) return 0;
  const bool alone = Present(op, step).size() == 1;
  return NoticeOf(submission.tells) | (alone ? 0 : negotiate::kNoNotice);
}

std::vector<int> HostsOf(const Shape& shape) {
  if (!shape.hosts.empty()) return shape.hosts;
  std::vector<int> hosts;
  for (int rank = 0; rank < shape.ranks; ++rank) hosts.push_back(rank / shape.ranks_per_host);
  return hosts;
}

namespace {

// Hosts of any sizes, whose ranks do not stand side by side; numbered as they first appear.
std::vector<int> DealHosts(Random* random, int ranks) {
  const uint64_t hosts = 1 + random->Below(static_cast<uint64_t>(ranks));
  std::map<uint64_t, int> numbers;
  std::vector<int> dealt;
  for (int rank = 0; rank < ranks; ++rank)
    dealt.push_back(
        numbers.emplace(random->Below(hosts), static_cast<int>(numbers.size())).first->second);
  return dealt;
}

}  // namespace

Shape DrawShape(Random* random, int most_ranks) {
  constexpr Network kNetworks[] = {kInfiniBand, kTcp, kLossy};
  Shape shape;
  shape.ranks = 2 + static_cast<int>(random->Below(static_cast<uint64_t>(most_ranks - 1)));
  // One host in a third of all cases.
  shape.ranks_per_host = random->OneIn(3) ? shape.ranks : 1 + static_cast<int>(random->Below(4));
  shape.shared_memory = !random->OneIn(4);
  shape.schedules = !random->OneIn(8);
  shape.network = kNetworks[random->Below(std::size(kNetworks))];
  if (random->OneIn(4)) shape.hosts = DealHosts(random, shape.ranks);
  if (random->OneIn(8)) shape.cache_capacity = Index(random->Below(4));
  if (random->OneIn(4)) shape.batch_bytes = 1 + static_cast<int64_t>(random->Below(64));
  if (random->OneIn(4)) shape.fusion_threshold = static_cast<int64_t>(random->Below(64));
  return shape;
}

Plan DrawPlan(Random* random, const Shape& shape) {
  Plan plan;
  plan.sets = DrawSets(random, shape.ranks);
  const size_t ops = 1 + Index(random->Below(6));
  for (size_t op = 0; op < ops; ++op) plan.ops.push_back(DrawOp(random, plan.sets, op));
  plan.ordered = random->OneIn(3);
  plan.steps = DrawSteps(random, ops, shape.ranks, plan.ordered);
  plan.slow = random->OneIn(5);
  plan.joins_in_flight = random->OneIn(3);
  plan.overlaps = random->OneIn(3);
  plan.priorities = random->OneIn(3);
  plan.leaves = random->OneIn(3);
  const size_t last = plan.steps.size();
  if (random->OneIn(4) && last > 1) plan.resumes_at = 1 + Index(random->Below(last - 1));
  const size_t all_join_at = std::min(plan.resumes_at, last);
  const bool some_join_early = random->OneIn(4);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const bool early = some_join_early && random->OneIn(3);
    plan.joins_at.push_back(early ? Index(random->Below(all_join_at)) : all_join_at);
  }
  if (!random->OneIn(10)) return plan;
  constexpr Ending kEndings[] = {Ending::kDeath, Ending::kFreeze, Ending::kHang};
  plan.ending = kEndings[random->Below(std::size(kEndings))];
  plan.victim = DrawRank(random, shape.ranks);
  plan.ends_at = Index(random->Below(plan.steps.size()));
  return plan;
}

}  // namespace hvd::sim
