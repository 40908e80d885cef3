#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

struct LearningOptions {
  size_t repeats = 3;             // equal steps that make a schedule; 0: none is ever made
  size_t longest_period = 64;     // so many steps of different shape may alternate
  size_t longest_step = 1 << 14;  // operations; a longer one is not learned
  // Numbers in its sizes, likewise: so the message with a schedule, and what is kept of steps, stay
  // small in a set of any size.
  size_t most_sizes = 1 << 20;
  // Of more than `few_steps` that alternate, operations and numbers in all, likewise.
  size_t few_steps = 4;
  size_t most_of_many = 1 << 11;
};

// Finds out from a sequencer's responses that steps repeat. A step ends where nothing is under way:
// every announced operation has been decided. So the order in which operations become ready within
// a step, and how they are cut into batches, may change from step to step; those of the latest are
// taken.
class ScheduleLearner {
 public:
  explicit ScheduleLearner(LearningOptions options) : options_(options), needed_(options.repeats) {}

  // The response that was decided next. `quiet`: nothing is under way behind it. Returns what
  // repeats, once it has done so often enough; empty before.
  Schedule Note(const Response& response, bool quiet);

  // A schedule was left after so many batches of it have run. One that served but shortly is
  // trusted only after more repeats, the next time.
  void Left(size_t batches);

  // From here on ids mean something else.
  void Restart();

 private:
  struct Step {
    std::vector<std::vector<Slot>> batches;
    uint64_t digest = 0;  // equal for the same operations in any order
    size_t slots = 0;
    size_t sizes = 0;
    size_t weight() const { return slots + sizes; }
  };

  bool Take(const Response& response);
  void EndStep();
  void Forget();
  size_t Period() const;  // 0: nothing repeats yet
  Schedule Latest(size_t period);

  const LearningOptions options_;
  size_t needed_;         // repeats that make the next schedule
  size_t last_size_ = 0;  // batches of the schedule that was made last
  Step step_;             // under way
  bool learnable_ = true;
  std::deque<uint64_t> digests_;  // of the latest steps
  std::deque<Step> steps_;        // of these the latest, of which a schedule can be made
  size_t weight_ = 0;             // of these
};

}  // namespace hvd::negotiate
