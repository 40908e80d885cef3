// Simulates jobs, one from each seed, and says which seeds break a rule.
//
// simulate [--seeds N] [--first N] [--ranks N]    many seeds
// simulate --seed N [--ranks N]                   one, described
// simulate --scale N --tensors N                  what negotiation costs N ranks, as JSON
// simulate --first-step N --tensors N             its first step alone, which needs less memory

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/job.h"

namespace hvd::sim {
namespace {

struct Arguments {
  uint64_t seeds = 1000;
  uint64_t first = 0;
  int ranks = 16;
  int scale = 0;
  int first_step = 0;
  int tensors = 200;
  bool one = false;
};

bool Parse(int count, char** words, Arguments* arguments) {
  for (int i = 1; i + 1 < count; i += 2) {
    const uint64_t value = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seeds") == 0) {
      arguments->seeds = value;
    } else if (std::strcmp(words[i], "--first") == 0) {
      arguments->first = value;
    } else if (std::strcmp(words[i], "--ranks") == 0 && value >= 2) {
      arguments->ranks = static_cast<int>(value);
    } else if (std::strcmp(words[i], "--scale") == 0 && value >= 2) {
      arguments->scale = static_cast<int>(value);
    } else if (std::strcmp(words[i], "--first-step") == 0 && value >= 2) {
      arguments->first_step = static_cast<int>(value);
    } else if (std::strcmp(words[i], "--tensors") == 0 && value >= 2) {
      arguments->tensors = static_cast<int>(value);
    } else if (std::strcmp(words[i], "--seed") == 0) {
      arguments->first = value;
      arguments->seeds = 1;
      arguments->one = true;
    } else {
      return false;
    }
  }
  return count % 2 == 1;
}

void DescribeSeed(uint64_t seed, int most_ranks) {
  Random random(seed);
  const Shape shape = DrawShape(&random, most_ranks);
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
              Describe(shape, DrawPlan(&random, shape)).c_str());
}

void Print(const char* name, const Scale::Phase& phase) {
  std::printf(
      ", \"%s\": {\"micros\": %.1f, \"messages\": %.0f, \"most_messages\": %.0f, \"most_frames\": "
      "%.0f}",
      name, phase.micros, phase.messages, phase.most_messages, phase.most_frames);
}

int ShowScale(const Arguments& arguments) {
  for (const Network& network : {kInfiniBand, kTcp}) {
    const Scale scale = MeasureScale(arguments.scale, arguments.tensors, network);
    std::printf(
        "{\"ranks\": %d, \"tensors\": %d, \"network\": \"%s\", \"most_peers\": %d, "
        "\"more_data_links\": %d",
        scale.ranks, scale.tensors, network.name, scale.most_peers, scale.more_data_links);
    Print("cold", scale.cold);
    Print("cached", scale.cached);
    Print("learned", scale.learned);
    Print("departs", scale.departs);
    std::printf("}\n");
  }
  return 0;
}

int ShowFirstStep(const Arguments& arguments) {
  for (const Network& network : {kInfiniBand, kTcp}) {
    std::printf("{\"ranks\": %d, \"tensors\": %d, \"network\": \"%s\"", arguments.first_step,
                arguments.tensors, network.name);
    Print("cold", MeasureFirstStep(arguments.first_step, arguments.tensors, network));
    std::printf("}\n");
  }
  return 0;
}

int Main(const Arguments& arguments) {
  if (arguments.first_step > 0) return ShowFirstStep(arguments);
  if (arguments.scale > 0) return ShowScale(arguments);
  Outcome sum;
  uint64_t violations = 0;
  for (uint64_t i = 0; i < arguments.seeds; ++i) {
    const uint64_t seed = arguments.first + i;
    if (arguments.one) DescribeSeed(seed, arguments.ranks);
    const Outcome outcome = RunSeed(seed, arguments.ranks);
    sum.steps += outcome.steps;
    sum.collectives += outcome.collectives;
    sum.gates += outcome.gates;
    sum.schedules_left += outcome.schedules_left;
    sum.events += outcome.events;
    if (outcome.violation.empty()) continue;
    ++violations;
    std::printf("seed %llu (--ranks %d): %s\n", static_cast<unsigned long long>(seed),
                arguments.ranks, outcome.violation.c_str());
    if (violations == 10) break;
  }
  std::printf(
      "%llu steps, %llu collectives, %llu gates, %llu schedules left, %llu events: %llu "
      "violations\n",
      static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(sum.collectives),
      static_cast<unsigned long long>(sum.gates),
      static_cast<unsigned long long>(sum.schedules_left),
      static_cast<unsigned long long>(sum.events), static_cast<unsigned long long>(violations));
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hvd::sim

int main(int count, char** words) {
  hvd::sim::Arguments arguments;
  if (hvd::sim::Parse(count, words, &arguments)) return hvd::sim::Main(arguments);
  std::fprintf(stderr,
               "usage: simulate [--seeds N] [--first N] [--ranks N] | --seed N [--ranks N]\n");
  return 2;
}
