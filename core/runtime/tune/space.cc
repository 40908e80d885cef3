#include "runtime/tune/space.h"

#include <algorithm>

namespace hvd {

namespace {

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

}  // namespace hvd
