#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/liveness/cause.h"
#include "runtime/progress/set_table.h"

namespace hvd {

struct StallOptions {
  int64_t warning_us = 10000000;  // 0 = never
  int64_t failure_us = 0;         // 0 = never
  int64_t deadlock_us = 0;        // the failure of a proved deadlock; 0 = never
  // For how long every rank of the job has been Blocked.
  std::function<int64_t()> everybody_blocked_us;
  // The messages that this rank waits for, a line each; empty: none.
  std::function<std::string()> open_messages;
  std::function<void()> on_stall;               // a stall is reported for the first time
  std::function<void(Cause cause)> on_failure;  // it ends the generation
};

// Operations that some ranks have submitted and others have not: says so on the rank of the root,
// less and less often and in full only where something has changed, and ends the job by an explicit
// limit or a proved deadlock. Belongs to the holder of the progress lock.
class StallCheck {
 public:
  explicit StallCheck(StallOptions options);

  // When the next look is due, on the clock of NowMicros; -1 = never.
  int64_t Deadline() const { return period_us_ > 0 ? next_look_us_ : -1; }

  // Looks at the sets whose root is here, when it is time to.
  void Look(const SetTable& sets, int64_t now_us);

 private:
  using Pending = std::vector<negotiate::Unready>;
  bool Warn(uint32_t set, const Pending& pending, int64_t now_us);
  void Judge(const Pending& pending, int64_t now_us);
  void JudgeMessages();
  bool Fail(const Pending& pending, int64_t now_us, int64_t limit_us, const char* introduction);

  StallOptions options_;
  int64_t period_us_ = 0;  // 0 = no check
  int64_t next_look_us_ = 0;
  int64_t next_warning_us_ = 0;
  int warnings_ = 0;                    // since something stalls
  std::map<uint32_t, Pending> warned_;  // by set: of what the last report told
};

}  // namespace hvd
