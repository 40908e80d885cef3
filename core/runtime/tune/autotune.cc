#include "runtime/tune/autotune.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hvd {

namespace {

// Of the unit box: values a third of a range apart say something about each other.
constexpr double kLengthScale = 0.3;
constexpr size_t kContestants = 3;
constexpr int64_t kContestRounds = 2;
constexpr double kNoScore = -std::numeric_limits<double>::infinity();
constexpr double kLeastScore = 1e-12;

// Tried before there is anything to conclude from: the corners and the middle of threshold and
// window, each with another algorithm.
const GaussianProcess::Point kSpread[] = {
    {0.9, 0.2, 0.5}, {0.5, 0.5, 1.0}, {0.9, 0.9, 0.5}, {0.2, 0.1, 0.0}, {0.6, 0.0, 0.8}};

double Share(size_t index, size_t count) {
  return count < 2 ? 0.5 : static_cast<double>(index) / static_cast<double>(count - 1);
}

double SquaredDistance(const GaussianProcess::Point& a, const GaussianProcess::Point& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

constexpr int64_t kLeastThreshold = 64 << 10;
constexpr int64_t kMostThreshold = 64 << 20;
constexpr int64_t kLeastWindowUs = 50;
constexpr int64_t kMostWindowUs = 50000;
constexpr int64_t kLeastDirect = 1 << 10;
constexpr int64_t kMostDirect = 64 << 10;

// `value` takes the place of its nearest neighbour by ratio, so that the list stays evenly spaced.
void Place(int64_t value, std::vector<int64_t>* values) {
  const auto distance = [value](int64_t other) {
    const double a = static_cast<double>(value) + 1;
    const double b = static_cast<double>(other) + 1;
    return std::max(a, b) / std::min(a, b);
  };
  *std::min_element(values->begin(), values->end(),
                    [&](int64_t a, int64_t b) { return distance(a) < distance(b); }) = value;
}

std::vector<int64_t> Steps(int64_t least, int64_t most, int64_t factor) {
  std::vector<int64_t> values;
  for (int64_t value = least; value < most; value *= factor) values.push_back(value);
  values.push_back(most);
  return values;
}

}  // namespace

AutotuneOptions SearchSpace(const Tuned& start, int64_t longest_window_us) {
  AutotuneOptions options;
  options.start = start;
  options.start.fusion_threshold = std::min(start.fusion_threshold, kMostThreshold);
  const int64_t longest = std::min(longest_window_us, kMostWindowUs);
  options.start.window_us = std::min(start.window_us, longest);
  options.start.direct_bytes = std::clamp(start.direct_bytes, kLeastDirect, kMostDirect);
  options.thresholds = Steps(kLeastThreshold, kMostThreshold, 2);
  options.thresholds.insert(options.thresholds.begin(), 0);
  options.windows_us = Steps(std::min(kLeastWindowUs, longest), longest, 2);
  options.direct_bytes = Steps(kLeastDirect, kMostDirect, 4);
  Place(options.start.fusion_threshold, &options.thresholds);
  Place(options.start.window_us, &options.windows_us);
  Place(options.start.direct_bytes, &options.direct_bytes);
  return options;
}

double Autotune::Candidate::Mean() const {
  if (scores.empty()) return kNoScore;
  double sum = 0;
  for (const double score : scores) sum += score;
  return sum / static_cast<double>(scores.size());
}

Autotune::Autotune(AutotuneOptions options) : options_(std::move(options)) {
  AddCandidates();
  for (const GaussianProcess::Point& point : kSpread) {
    const size_t candidate = Nearest(point);
    const bool known = std::find(spread_.begin(), spread_.end(), candidate) != spread_.end();
    if (!known && candidate != current_) spread_.push_back(candidate);
  }
  std::reverse(spread_.begin(), spread_.end());
  if (options_.warmup_samples == 0) stage_ = Stage::kSpread;
  if (options_.search_samples == 0 || candidates_.size() == 1) stage_ = Stage::kDone;
}

void Autotune::AddCandidates() {
  const auto& [start, thresholds, windows, direct, warmup, search, noise] = options_;
  for (size_t t = 0; t < thresholds.size(); ++t) {
    for (size_t w = 0; w < windows.size(); ++w) {
      for (size_t d = 0; d < direct.size(); ++d) {
        Candidate candidate{
            {thresholds[t], windows[w], direct[d]},
            {Share(t, thresholds.size()), Share(w, windows.size()), Share(d, direct.size())},
            {}};
        if (candidate.values == start) current_ = candidates_.size();
        candidates_.push_back(std::move(candidate));
      }
    }
  }
}

size_t Autotune::Nearest(const GaussianProcess::Point& point) const {
  const auto nearer = [&point](const Candidate& a, const Candidate& b) {
    return SquaredDistance(a.point, point) < SquaredDistance(b.point, point);
  };
  return static_cast<size_t>(std::min_element(candidates_.begin(), candidates_.end(), nearer) -
                             candidates_.begin());
}

size_t Autotune::Best() const {
  size_t best = current_;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].Mean() > candidates_[best].Mean()) best = i;
  }
  return best;
}

const Tuned& Autotune::best() const { return candidates_[done() ? current_ : Best()].values; }

void Autotune::Add(double score) {
  if (done()) return;
  ++samples_;
  ++stage_samples_;
  if (stage_ == Stage::kWarmup) {
    if (stage_samples_ < options_.warmup_samples) return;
    stage_ = Stage::kSpread;
    stage_samples_ = 0;
    return;
  }
  candidates_[current_].scores.push_back(std::log(std::max(score, kLeastScore)));
  if (stage_ == Stage::kContest) {
    Contest();
  } else if (stage_samples_ >= options_.search_samples) {
    BeginContest();
  } else {
    Search();
  }
}

void Autotune::Search() {
  if (!spread_.empty()) {
    current_ = spread_.back();
    spread_.pop_back();
    return;
  }
  stage_ = Stage::kSearch;
  current_ = MostPromising();
}

size_t Autotune::MostPromising() const {
  std::vector<GaussianProcess::Point> points;
  std::vector<double> values;
  for (const Candidate& candidate : candidates_) {
    for (const double score : candidate.scores) {
      points.push_back(candidate.point);
      values.push_back(score);
    }
  }
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean);
  const double deviation = std::sqrt(variance / static_cast<double>(values.size()));
  for (double& value : values) value = deviation > 0 ? (value - mean) / deviation : 0.0;

  GaussianProcess process(kLengthScale, options_.noise);
  process.Fit(points, values);
  // Not the highest score, which is partly luck, but what the process makes of it.
  double best = kNoScore;
  for (const GaussianProcess::Point& point : points) best = std::max(best, process.At(point).mean);
  size_t chosen = current_;
  double most = -1;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double improvement = ExpectedImprovement(process.At(candidates_[i].point), best);
    if (improvement > most) {
      most = improvement;
      chosen = i;
    }
  }
  return chosen;
}

void Autotune::BeginContest() {
  stage_ = Stage::kContest;
  stage_samples_ = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (!candidates_[i].scores.empty()) contest_.push_back(i);
  }
  std::sort(contest_.begin(), contest_.end(),
            [this](size_t a, size_t b) { return candidates_[a].Mean() > candidates_[b].Mean(); });
  contest_.resize(std::min(contest_.size(), kContestants));
  current_ = contest_[0];
}

void Autotune::Contest() {
  const auto round = static_cast<size_t>(stage_samples_);
  if (stage_samples_ < kContestRounds * static_cast<int64_t>(contest_.size())) {
    current_ = contest_[round % contest_.size()];
    return;
  }
  // Not Best: others may have had more luck with their one sample.
  current_ = *std::max_element(contest_.begin(), contest_.end(), [this](size_t a, size_t b) {
    return candidates_[a].Mean() < candidates_[b].Mean();
  });
  stage_ = Stage::kDone;
}

}  // namespace hvd
