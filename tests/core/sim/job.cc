#include "sim/job.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/rank.h"

namespace hvd::sim {

namespace {

constexpr uint64_t kMostEvents = 50'000'000;
constexpr Nanos kDetection = 200'000 * kMicro;  // until a dead rank is noticed
// Until one looks at what hangs: what others compute meanwhile has to be over for long.
constexpr Nanos kHangs = 120'000'000 * kMicro;
constexpr int64_t kStallMicros = 15'000'000;  // which has been so for so long then

using Ranks = std::vector<std::unique_ptr<Rank>>;

bool AllFinished(const Ranks& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank]->ended() && !ranks[rank]->finished()) return false;
  }
  return true;
}

std::string Stuck(const Ranks& ranks) {
  std::string text = "nothing happens any more";
  for (const auto& rank : ranks) {
    if (!rank->finished()) text += "; " + rank->Waiting();
  }
  return text;
}

// Whoever watches has noticed that the victim is dead, at a moment that nothing else depends on.
void EndGeneration(Job* job, Ranks* ranks) {
  for (size_t rank = 0; rank < ranks->size(); ++rank) {
    if (static_cast<int>(rank) != job->plan.victim) (*ranks)[rank]->Abort();
  }
}

// Who hangs is the one, and the only one, that everything waits for. Below a rank whose process has
// stopped others may seem absent, too: their announcements go through it.
void CheckReport(const Job& job, const Ranks& ranks) {
  if (job.plan.sets.size() > 1) return;  // who waits in another set is absent from this one, too
  const std::vector<GlobalRank> absent = ranks.front()->AbsentAfter(kStallMicros);
  const GlobalRank victim(job.plan.victim);
  const bool named = std::find(absent.begin(), absent.end(), victim) != absent.end();
  if (named && (absent.size() == 1 || job.plan.ending == Ending::kFreeze)) return;
  std::string text = "the stall report does not name the rank that hangs, but";
  for (const GlobalRank rank : absent) text += " " + std::to_string(rank.value());
  for (const auto& rank : ranks) text += "; " + rank->Waiting();
  Violate(text);
}

// Of a set of all ranks each of them has done the same.
void CheckCounters(const Job& job, const Ranks& ranks) {
  if (job.plan.sets.size() > 1) return;
  const Counters& first = ranks.front()->counters();
  for (const auto& rank : ranks) {
    const Counters& own = rank->counters();
    if (own.gates != first.gates || own.scheduled != first.scheduled ||
        own.schedules_left != first.schedules_left || own.responses != first.responses ||
        own.collectives != first.collectives || own.tensors != first.tensors)
      Violate("ranks count differently what they do together");
  }
}

void Run(Job* job, Ranks* ranks, Outcome* outcome) {
  for (int rank = 0; rank < job->shape.ranks; ++rank)
    ranks->push_back(std::make_unique<Rank>(job, rank));
  const bool hit = job->plan.ending != Ending::kDone;
  Nanos end = -1;
  while (job->world.Next()) {
    if (++outcome->events > kMostEvents) Violate("the job does not come to an end");
    if (!hit || !(*ranks)[static_cast<size_t>(job->plan.victim)]->ended()) continue;
    if (end < 0)
      end = job->world.now() + (job->plan.ending == Ending::kDeath ? kDetection : kHangs);
    if (job->world.now() >= end) break;
  }
  if (AllFinished(*ranks)) return hit ? void() : CheckCounters(*job, *ranks);
  if (end < 0) Violate(Stuck(*ranks));
  if (job->plan.ending == Ending::kDeath) return EndGeneration(job, ranks);
  CheckReport(*job, *ranks);
}

}  // namespace

Outcome RunJob(const Shape& shape, Plan plan, uint64_t seed) {
  Outcome outcome;
  Job job(shape, std::move(plan), seed);
  Ranks ranks;
  try {
    Run(&job, &ranks, &outcome);
  } catch (const Violation& violation) {
    outcome.violation = violation.what;
  }
  outcome.steps = job.plan.steps.size();
  outcome.collectives = job.ledger.collectives();
  outcome.time = job.world.now();
  for (const auto& rank : ranks) {
    outcome.gates += rank->counters().gates;
    outcome.schedules_left += rank->counters().schedules_left;
  }
  return outcome;
}

Outcome RunSeed(uint64_t seed, int most_ranks) {
  Random random(seed);
  const Shape shape = DrawShape(&random, most_ranks);
  Plan plan = DrawPlan(&random, shape);
  return RunJob(shape, std::move(plan), random.Next());
}

std::string Describe(const Shape& shape, const Plan& plan) {
  std::string text =
      std::to_string(shape.ranks) + " ranks, " + std::to_string(shape.ranks_per_host) + " a host" +
      (shape.shared_memory ? "" : " without shared memory") + ", " + shape.network.name +
      (shape.schedules ? "" : ", no schedules") + "; " + std::to_string(plan.sets.size()) +
      " sets, " + std::to_string(plan.ops.size()) + " operations, " +
      std::to_string(plan.steps.size()) + " steps";
  if (plan.ending == Ending::kDeath) text += "; rank " + std::to_string(plan.victim) + " dies";
  if (plan.ending == Ending::kFreeze) text += "; rank " + std::to_string(plan.victim) + " stops";
  if (plan.ending == Ending::kHang) text += "; rank " + std::to_string(plan.victim) + " hangs";
  return text;
}

}  // namespace hvd::sim
