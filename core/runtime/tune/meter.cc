#include "runtime/tune/meter.h"

#include <algorithm>
#include <utility>

namespace hvd {

using negotiate::kNoId;

namespace {

// What stays away for this many times the distance of the anchor is no part of a step, or no more.
constexpr int64_t kPatience = 4;
constexpr int64_t kLeastPatience = 64;

}  // namespace

std::optional<double> AutotuneMeter::Add(uint32_t id, int64_t bytes, int64_t now_us) {
  if (bytes == 0) return std::nullopt;
  std::optional<double> score;
  if (IsBoundary(id, bytes, now_us)) score = EndStep(now_us);
  step_.bytes += bytes;
  return score;
}

bool AutotuneMeter::IsBoundary(uint32_t id, int64_t bytes, int64_t now_us) {
  ++operations_;
  const int64_t patience = kPatience * anchor_distance_ + kLeastPatience;
  if (anchor_ != kNoId && operations_ - last_[anchor_] > patience) SetAnchor(kNoId, 0);
  const int64_t distance = id == kNoId ? 0 : Distance(id);
  if (id == anchor_ && id != kNoId) {
    anchor_distance_ = distance;
    return true;
  }
  if (distance > 0 && bytes > anchor_bytes_ && (anchor_ == kNoId || distance <= patience)) {
    SetAnchor(id, bytes);
    anchor_distance_ = distance;
    return true;
  }
  return anchor_ == kNoId && (!open_ || now_us - step_began_us_ >= kTimedStepUs);
}

// How many operations ago this one came the last time; 0 = never.
int64_t AutotuneMeter::Distance(uint32_t id) {
  if (last_.size() <= id) last_.resize(id + 1, 0);
  const int64_t before = std::exchange(last_[id], operations_);
  return before == 0 ? 0 : operations_ - before;
}

void AutotuneMeter::SetAnchor(uint32_t id, int64_t bytes) {
  anchor_ = id;
  anchor_bytes_ = bytes;
  Restart();
}

void AutotuneMeter::Restart() {
  open_ = settled_ = false;
  steps_.clear();
  sample_us_ = 0;
}

std::optional<double> AutotuneMeter::EndStep(int64_t now_us) {
  step_.micros = now_us - step_began_us_;
  if (open_ && settled_) {
    steps_.push_back(step_);
    sample_us_ += step_.micros;
  }
  settled_ = open_;
  open_ = true;
  step_ = {0, 0};
  step_began_us_ = now_us;
  if (static_cast<int64_t>(steps_.size()) < steps_per_sample_ || sample_us_ < kLeastSampleUs) {
    return std::nullopt;
  }
  const double score = Score();
  steps_.clear();
  sample_us_ = 0;
  return score;
}

double AutotuneMeter::Score() {
  const auto middle = steps_.begin() + static_cast<int64_t>(steps_.size() / 2);
  std::nth_element(steps_.begin(), middle, steps_.end(),
                   [](const Step& a, const Step& b) { return a.bytes < b.bytes; });
  const int64_t usual = middle->bytes;
  std::vector<double> rates;
  for (const Step& step : steps_) {
    if (step.bytes < usual - usual / 10 || step.bytes > usual + usual / 10) continue;
    rates.push_back(static_cast<double>(step.bytes) /
                    static_cast<double>(std::max<int64_t>(step.micros, 1)));
  }
  const auto median = rates.begin() + static_cast<int64_t>(rates.size() / 2);
  std::nth_element(rates.begin(), median, rates.end());
  return *median;
}

}  // namespace hvd
