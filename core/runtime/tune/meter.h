#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "negotiate/message.h"

namespace hvd {

// Scores live traffic in bytes per microsecond. Pure: operations and the time go in, scores come
// out.
//
// Training repeats itself, and its own computing is part of the time between two operations, so
// only whole repetitions can be compared. A *step* lasts from one appearance of the *anchor* to the
// next. The anchor is the largest operation that has come back (of equals the first to do so): a
// gradient, which comes once a step, and not a metric, which may come often, nor what is broadcast
// once at the beginning. The first step after a restart is dropped: some of it ran before.
//
// While nothing that comes back has a cached id (unnamed operations, no cache) a step is what comes
// within kTimedStepUs.
//
// A *sample* is so many steps, and lasts at least kLeastSampleUs, as the clock counts microseconds.
// Its score is the median over its steps of the usual size: a pause for a checkpoint, or a step
// with a metric more, changes nothing.
class AutotuneMeter {
 public:
  static constexpr int64_t kTimedStepUs = 20000;
  static constexpr int64_t kLeastSampleUs = 20000;

  explicit AutotuneMeter(int64_t steps_per_sample) : steps_per_sample_(steps_per_sample) {}

  // An operation that goes on its way now. `id`: kNoId when it has none. A score when a sample is
  // complete; the next sample then begins.
  std::optional<double> Add(uint32_t id, int64_t bytes, int64_t now_us);

  // What was measured does not count: the values have changed.
  void Restart();

 private:
  struct Step {
    int64_t bytes;
    int64_t micros;
  };

  bool IsBoundary(uint32_t id, int64_t bytes, int64_t now_us);
  int64_t Distance(uint32_t id);
  void SetAnchor(uint32_t id, int64_t bytes);
  std::optional<double> EndStep(int64_t now_us);
  double Score();  // reorders steps_

  const int64_t steps_per_sample_;
  int64_t operations_ = 0;
  std::vector<int64_t> last_;  // by id: which operation it was the last time, from 1; 0 = not yet
  uint32_t anchor_ = negotiate::kNoId;
  int64_t anchor_bytes_ = 0;
  int64_t anchor_distance_ = 0;  // operations from one appearance to the next
  bool open_ = false;            // a step is being measured
  bool settled_ = false;         // one has ended since the restart
  Step step_{0, 0};
  int64_t step_began_us_ = 0;
  std::vector<Step> steps_;
  int64_t sample_us_ = 0;
};

}  // namespace hvd
