#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd::negotiate {

// On the root of a set that follows a schedule: whether it is worth learning another. The batches
// are those of the step in which they were learned. If that was slow and steps are fast now,
// several batches after one another are complete at once and could be one. Then the root says
// its last word at the end of a step, as any member may, and one is learned from the steps
// of now. Where other members are slower than the root that gains nothing: so it is tried less and
// less often while it does not. Pure.
class ScheduleReview {
 public:
  // A schedule begins, whose batches take so many bytes. More than `most` do not travel together.
  void Begin(std::vector<int64_t> batch_bytes, int64_t most);

  // A batch of it runs. `ready`: this member has submitted all of the next one.
  void Passed(bool ready);

  // From the end of a step on.
  bool due() const { return coarse_steps_ >= patience_; }

 private:
  void EndStep();

  static constexpr size_t kPatience = 64;  // steps
  static constexpr size_t kMostPatience = 1 << 20;

  std::vector<int64_t> batch_bytes_;
  int64_t most_ = 0;
  size_t left_for_ = 0;  // batches of the schedule that was left by this last; 0: none was
  size_t patience_ = kPatience;
  size_t coarse_steps_ = 0;  // that would have needed fewer batches, less those that would not

  size_t next_ = 0;    // batch
  size_t needed_ = 1;  // batches, so far in this step
  int64_t bytes_ = 0;  // of the last of these
};

}  // namespace hvd::negotiate
