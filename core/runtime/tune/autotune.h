#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tune/gaussian_process.h"

namespace hvd {

// What is tuned.
struct Tuned {
  int64_t fusion_threshold = 0;  // bytes; 0 = every tensor alone
  int64_t window_us = 0;         // silence after which a batch closes
  int64_t direct_bytes = 0;      // see CollectiveSpec

  bool operator==(const Tuned& o) const {
    return fusion_threshold == o.fusion_threshold && window_us == o.window_us &&
           direct_bytes == o.direct_bytes;
  }
};

struct AutotuneOptions {
  Tuned start;
  // Every value that may be tried, ascending. The start belongs to them. A list of one is not
  // tuned.
  std::vector<int64_t> thresholds;
  std::vector<int64_t> windows_us;
  std::vector<int64_t> direct_bytes;
  int64_t warmup_samples = 3;
  int64_t search_samples = 20;  // those of the contest come on top
  double noise = 0.8;           // variance of a score, where that of all scores is 1
};

// Every value worth trying, and `start`, which is tried first: thresholds of 0 and from 64 KiB to
// 64 MiB, windows from what still gathers tensors up to the longest, crossovers from 1 to 64 KiB.
AutotuneOptions SearchSpace(const Tuned& start, int64_t longest_window_us);

// The search for the values under which a job moves most bytes in a microsecond. Pure: scores go
// in, values come out; no clock, thread or file inside, and equal scores give equal values.
//
// Terms: a *sample* is the score of the current values. A *candidate* is one combination of values.
//
// First come the warm-up, whose scores are dropped, and a few candidates that lie far apart. Each
// further candidate is the one from which a Gaussian process through the logarithms of the scores
// expects the largest improvement. At last the best few are measured again in turns, because the
// highest of many noisy scores is the luckiest as much as the best, and the winner stays.
class Autotune {
 public:
  explicit Autotune(AutotuneOptions options);

  // What to use now, and for good when done.
  const Tuned& values() const { return candidates_[current_].values; }
  bool done() const { return stage_ == Stage::kDone; }

  // The score of the current values: any positive number, higher is better. May change the values.
  void Add(double score);

  // Samples taken so far, the warm-up among them.
  int64_t samples() const { return samples_; }
  // What has the highest mean score so far; the start if nothing has any; when done, what stays.
  const Tuned& best() const;

 private:
  enum class Stage { kWarmup, kSpread, kSearch, kContest, kDone };
  struct Candidate {
    Tuned values;
    GaussianProcess::Point point;  // in the unit box
    std::vector<double> scores;    // logarithms

    double Mean() const;
  };

  void AddCandidates();
  size_t Nearest(const GaussianProcess::Point& point) const;
  size_t Best() const;
  void Search();
  size_t MostPromising() const;
  void BeginContest();
  void Contest();

  const AutotuneOptions options_;
  std::vector<Candidate> candidates_;
  std::vector<size_t> spread_;   // candidates to try first, last one first
  std::vector<size_t> contest_;  // those to measure again
  size_t current_ = 0;
  Stage stage_ = Stage::kWarmup;
  int64_t samples_ = 0;
  int64_t stage_samples_ = 0;  // of them in the warm-up, the search or the contest
};

}  // namespace hvd
