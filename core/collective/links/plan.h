#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

// What it costs to exchange data over links, in picoseconds, as far as a choice of algorithms
// depends on it. Whole numbers, so that every machine comes to the same choice. All members of a
// set must have the same values: whoever corrects them, as autotune could, does so between the same
// two operations everywhere.
struct LinkCosts {
  // Until who waits for a message goes on with it: the way through switches and kernels and the
  // wake-up at its end. Between two hosts of one room it takes 15 to 30 us.
  int64_t latency = 20'000'000;
  // What a processor does for each message: system calls, headers and their checksums.
  int64_t message = 3'000'000;
  // On the wire, at 10 Gbit/s.
  int64_t byte = 800;
  // To read it, add it or copy it: 10 GB/s, which memory gives one core when others are busy too.
  int64_t work = 100;
};

// How `members` that have links to each other reduce data in memory that all of them have. The core
// is the first product(radices) members. At each level the members of a group of `radix`, one level
// after the other, send each other what they have; after the last everybody has all. Who is not in
// the core sends its data to a member that is, before, and gets the result afterwards.
//
//   kWhole    everybody sends all it has: with radix 2 recursive doubling, with one level everybody
//             tells everybody. Fewest rounds.
//   kBlocks   every level cuts what is left in `radix` blocks; each member reduces one of them, and
//             the results come back level by level (Rabenseifner 2004, with any radix): everybody
//             sends 2 (p - 1) / p of the data.
struct ExchangePlan {
  enum class Form : uint8_t { kWhole, kBlocks };
  Form form = Form::kWhole;
  std::vector<int> radices;

  int core() const {
    int product = 1;
    for (const int radix : radices) product *= radix;
    return product;
  }
  bool operator==(const ExchangePlan& o) const { return form == o.form && radices == o.radices; }
};

int64_t CostOf(const ExchangePlan& plan, int members, int64_t bytes, const LinkCosts& costs);

// Around a ring in frames, where sending, receiving and adding overlap (ring.cc).
int64_t CostOfRing(int members, int64_t bytes, const LinkCosts& costs);

// The cheapest plan of a form; of one member, who finishes alone, one level of one. Where several
// exchanges are `under_way` at once, they share the waiting.
ExchangePlan CheapestPlan(ExchangePlan::Form form, int members, int64_t bytes,
                          const LinkCosts& costs, int64_t under_way = 1);

// Of any form.
ExchangePlan CheapestPlan(int members, int64_t bytes, const LinkCosts& costs,
                          int64_t under_way = 1);

}  // namespace hvd
