#include "collective/links/plan.h"

#include <algorithm>
#include <functional>

namespace hvd {

namespace {

using Form = ExchangePlan::Form;

// The prime factors, the largest first; empty where one is larger than `most`.
std::vector<int> PrimeFactors(int number, int most) {
  std::vector<int> factors;
  for (int prime = 2; prime <= most && number > 1; ++prime) {
    for (; number % prime == 0; number /= prime) factors.push_back(prime);
  }
  if (number > 1) factors.clear();
  std::reverse(factors.begin(), factors.end());
  return factors;
}

// As few factors of at most `most` as come of putting primes together; the largest first.
std::vector<int> Merge(const std::vector<int>& primes, int most) {
  std::vector<int> radices;
  for (const int prime : primes) {
    const auto room = std::find_if(radices.begin(), radices.end(),
                                   [&](int radix) { return radix * prime <= most; });
    if (room == radices.end()) {
      radices.push_back(prime);
    } else {
      *room *= prime;
    }
  }
  std::sort(radices.begin(), radices.end(), std::greater<>());
  return radices;
}

// For the largest core that has such radices. Each member of the core may serve one that is not in
// it; a power of two is always found.
std::vector<int> RadicesUpTo(int most, int members) {
  for (int core = members; 2 * core >= members; --core) {
    const std::vector<int> primes = PrimeFactors(core, most);
    if (!primes.empty()) return Merge(primes, most);
  }
  return {members};
}

// Every size of groups that may be worth it: above a few dozen only "all at once".
std::vector<int> Tried(int members) {
  constexpr int kMost = 32;
  std::vector<int> tried;
  for (int most = 2; most < std::min(members, kMost); ++most) tried.push_back(most);
  tried.push_back(members);
  return tried;
}

}  // namespace

int64_t CostOf(const ExchangePlan& plan, int members, int64_t bytes, const LinkCosts& costs) {
  const bool whole = plan.form == Form::kWhole;
  int64_t cost = 0;
  int64_t held = bytes;
  for (const int64_t radix : plan.radices) {
    const int64_t part = whole ? held : (held + radix - 1) / radix;
    const int64_t round = costs.latency + (radix - 1) * (costs.message + part * costs.byte);
    cost += whole ? round : 2 * round;
    cost += radix * part * costs.work;
    held = part;
  }
  if (plan.core() < members)
    cost += 2 * (costs.latency + costs.message + bytes * (costs.byte + costs.work));
  return cost;
}

int64_t CostOfRing(int members, int64_t bytes, const LinkCosts& costs) {
  const int64_t block = (bytes + members - 1) / members;
  return 2 * (members - 1) * (costs.latency + costs.message + block * costs.byte) +
         block * costs.work;
}

ExchangePlan CheapestPlan(Form form, int members, int64_t bytes, const LinkCosts& costs,
                          int64_t under_way) {
  LinkCosts shared = costs;
  shared.latency /= std::max<int64_t>(under_way, 1);
  ExchangePlan best;
  int64_t least = 0;
  for (const int most : Tried(members)) {
    ExchangePlan plan{form, RadicesUpTo(most, members)};
    const int64_t cost = CostOf(plan, members, bytes, shared);
    if (!best.radices.empty() && cost >= least) continue;
    least = cost;
    best = std::move(plan);
  }
  return best;
}

ExchangePlan CheapestPlan(int members, int64_t bytes, const LinkCosts& costs, int64_t under_way) {
  LinkCosts shared = costs;
  shared.latency /= std::max<int64_t>(under_way, 1);
  const ExchangePlan whole = CheapestPlan(Form::kWhole, members, bytes, shared);
  const ExchangePlan blocks = CheapestPlan(Form::kBlocks, members, bytes, shared);
  const bool whole_is_best =
      CostOf(whole, members, bytes, shared) <= CostOf(blocks, members, bytes, shared);
  return whole_is_best ? whole : blocks;
}

}  // namespace hvd
