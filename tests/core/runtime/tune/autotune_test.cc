// The search alone, against landscapes whose optimum is known.

#include "runtime/tune/autotune.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"

namespace hvd {
namespace {

// A training loop as a formula: tensors become ready one after another, batches cost a negotiation,
// collectives a start, and the last batch of a step waits for the silence after it.
struct Landscape {
  double tensors, bytes;           // of a step
  double gap_us;                   // between two tensors
  double batch_us, collective_us;  // for each
  double bytes_per_us;
  double cache_bytes;     // collectives above fall out of the cache
  double direct_bytes;    // best crossover
  double crossover_loss;  // share of time lost for each factor of two away from it

  explicit Landscape(std::mt19937* random) {
    const auto between = [random](double low, double high) {
      return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(*random));
    };
    tensors = between(20, 500);
    bytes = between(1e5, 1e8);
    gap_us = between(2, 300);
    batch_us = between(5, 50);
    collective_us = between(3, 60);
    bytes_per_us = between(500, 20000);
    cache_bytes = between(1e6, 5e7);
    direct_bytes = between(1 << 10, 64 << 10);
    crossover_loss = between(0.002, 0.02);
  }

  double Score(const Tuned& values) const {
    const double threshold = static_cast<double>(values.fusion_threshold);
    const double window = static_cast<double>(values.window_us);
    // Gaps vary: some are longer than the window however long it is.
    const double split = 1 / (1 + std::pow(window / gap_us, 3));
    const double filled = threshold > 0 ? bytes / threshold : 0;
    const double batches = std::min(tensors, 1 + (tensors - 1) * split + filled);
    const double collectives =
        threshold > 0 ? std::max(batches, std::min(tensors, filled)) : tensors;
    const double spill = 1 + 0.3 * std::max(0.0, std::log2(bytes / collectives / cache_bytes)) / 4;
    const double away =
        std::abs(std::log2(static_cast<double>(values.direct_bytes) / direct_bytes));
    const double time =
        window + batches * batch_us + collectives * collective_us + bytes / bytes_per_us * spill;
    return bytes / (time * (1 + crossover_loss * away));
  }
};

AutotuneOptions FromTheWorstStart() {
  AutotuneOptions options = SearchSpace({0, 50000, 64 << 10}, 50000);
  options.search_samples = 40;
  return options;
}

double Optimum(const AutotuneOptions& options, const Landscape& landscape) {
  double best = 0;
  for (const int64_t threshold : options.thresholds) {
    for (const int64_t window : options.windows_us) {
      for (const int64_t direct : options.direct_bytes) {
        best = std::max(best, landscape.Score({threshold, window, direct}));
      }
    }
  }
  return best;
}

// What the tuner settles on, as a share of the optimum. Every score is off by some per cent, every
// tenth by a lot, as if another program had run.
double Reached(AutotuneOptions options, uint32_t seed, double spread, int64_t* samples) {
  std::mt19937 random(seed);
  const Landscape landscape(&random);
  std::normal_distribution<double> normal(0, spread);
  Autotune tuner(options);
  while (!tuner.done() && tuner.samples() < 1000) {
    const double disturbed = random() % 10 == 0 ? 0.6 : 1.0;
    tuner.Add(landscape.Score(tuner.values()) * std::exp(normal(random)) * disturbed);
  }
  *samples = std::max(*samples, tuner.samples());
  return landscape.Score(tuner.values()) / Optimum(options, landscape);
}

int SeedsThatReach(double share, const AutotuneOptions& options, double spread, int64_t* samples) {
  int reached = 0;
  for (uint32_t seed = 0; seed < 100; ++seed)
    reached += Reached(options, seed, spread, samples) >= share;
  return reached;
}

TEST(Autotune, ReachesTheOptimumFromTheWorstStart) {
  int64_t samples = 0;
  const int reached = SeedsThatReach(0.95, FromTheWorstStart(), 0.03, &samples);
  printf("95 %% of the optimum: %d of 100 seeds, at most %lld samples\n", reached,
         static_cast<long long>(samples));
  EXPECT_TRUE(reached >= 95);
  EXPECT_TRUE(samples <= 60);
}

TEST(Autotune, TheDefaultNumberOfSamplesIsAlmostAsGood) {
  AutotuneOptions options = FromTheWorstStart();
  options.search_samples = AutotuneOptions().search_samples;
  int64_t samples = 0;
  const int reached = SeedsThatReach(0.90, options, 0.03, &samples);
  printf("90 %% of the optimum: %d of 100 seeds, at most %lld samples\n", reached,
         static_cast<long long>(samples));
  EXPECT_TRUE(reached >= 95);
  EXPECT_TRUE(samples <= 30);
}

TEST(Autotune, DropsTheWarmUpAndMeasuresTheStart) {
  AutotuneOptions options = FromTheWorstStart();
  options.warmup_samples = 4;
  options.search_samples = 3;
  Autotune tuner(options);
  for (int sample = 0; sample < 4; ++sample) {
    EXPECT_TRUE(tuner.values() == options.start);
    tuner.Add(1e9);  // were it counted, the start would win
  }
  EXPECT_TRUE(tuner.values() == options.start);
  tuner.Add(1.0);
  EXPECT_FALSE(tuner.values() == options.start);
  while (!tuner.done()) tuner.Add(tuner.values() == options.start ? 1.0 : 2.0);
  EXPECT_FALSE(tuner.values() == options.start);
  EXPECT_EQ(tuner.samples(), int64_t{4 + 3 + 3 * 2});
}

// One lucky score does not win.
TEST(Autotune, TheBestAreMeasuredAgain) {
  AutotuneOptions options = FromTheWorstStart();
  options.warmup_samples = 0;
  options.search_samples = 6;
  Autotune tuner(options);
  std::vector<Tuned> tried;
  while (!tuner.done()) {
    const bool again = std::find(tried.begin(), tried.end(), tuner.values()) != tried.end();
    const bool lucky = tried.size() == 2 && !again;
    tried.push_back(tuner.values());
    const bool good = tried.size() > 1 && tuner.values() == tried[1];
    tuner.Add(good ? 1.5 : lucky ? 2.0 : 1.0);
  }
  EXPECT_TRUE(tuner.values() == tried[1]);
}

TEST(Autotune, NoSamplesMeansTheStartStays) {
  AutotuneOptions options = FromTheWorstStart();
  options.search_samples = 0;
  Autotune tuner(options);
  EXPECT_TRUE(tuner.done());
  EXPECT_TRUE(tuner.values() == options.start);
}

TEST(Autotune, EqualScoresGiveEqualValues) {
  Autotune one(FromTheWorstStart()), other(FromTheWorstStart());
  std::mt19937 random(3);
  while (!one.done()) {
    const double score = 1 + static_cast<double>(random() % 1000);
    one.Add(score);
    other.Add(score);
    EXPECT_TRUE(one.values() == other.values());
  }
  EXPECT_TRUE(other.done());
}

// Whatever is configured: it is a candidate itself, and lists are ascending and within their
// bounds.
TEST(Autotune, TheSpaceHoldsTheStart) {
  for (const int64_t threshold : {int64_t{0}, int64_t{1}, int64_t{70000}, int64_t{128} << 20}) {
    for (const int64_t window : {0, 3, 50, 1000, 50000, 60000000}) {
      const AutotuneOptions space = SearchSpace({threshold, window, 21845}, window);
      const auto holds = [](const std::vector<int64_t>& values, int64_t value) {
        return std::is_sorted(values.begin(), values.end()) &&
               std::find(values.begin(), values.end(), value) != values.end();
      };
      EXPECT_EQ(space.start.fusion_threshold, std::min(threshold, int64_t{64} << 20));
      EXPECT_TRUE(holds(space.thresholds, space.start.fusion_threshold));
      EXPECT_TRUE(holds(space.windows_us, space.start.window_us));
      EXPECT_TRUE(holds(space.direct_bytes, 21845));
      EXPECT_TRUE(space.windows_us.back() <= std::min<int64_t>(window, 50000));
      EXPECT_TRUE(Autotune(space).values() == space.start);
    }
  }
}

}  // namespace
}  // namespace hvd
