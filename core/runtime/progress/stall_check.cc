#include "runtime/progress/stall_check.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "negotiate/stall.h"
#include "settings/log.h"

namespace hvd {

namespace {

constexpr int kMostBackOff = 5;

void LogLines(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) Log(LogLevel::kWarning, line);
}

}  // namespace

StallCheck::StallCheck(StallOptions options) : options_(std::move(options)) {
  // Often enough that no limit is overrun by more than a fifth.
  for (const int64_t limit : {options_.warning_us, options_.failure_us, options_.deadlock_us}) {
    if (limit > 0 && (period_us_ == 0 || limit / 5 < period_us_)) period_us_ = limit / 5;
  }
}

void StallCheck::Look(const SetTable& sets, int64_t now_us) {
  if (period_us_ == 0 || now_us < next_look_us_) return;
  next_look_us_ = now_us + period_us_;
  bool stalled = false;
  for (const auto& [id, set] : sets.all()) {
    if (set->root() == nullptr) continue;
    const Pending pending = set->Pending(now_us);
    if (options_.warning_us > 0) stalled |= Warn(id, pending, now_us);
    Judge(pending, now_us);
    const std::string straggler = set->root()->TakeStraggler(now_us);
    if (!straggler.empty()) Log(LogLevel::kWarning, straggler);
  }
  JudgeMessages();
  if (!stalled) {
    next_warning_us_ = 0;
    warnings_ = 0;
    warned_.clear();
  } else if (now_us >= next_warning_us_) {
    // What goes on for long is said less and less often.
    warnings_ = std::min(warnings_ + 1, kMostBackOff);
    next_warning_us_ = now_us + (options_.warning_us << (warnings_ - 1));
  }
}

// Whether something is stalled; says so when it is time to.
bool StallCheck::Warn(uint32_t set, const Pending& pending, int64_t now_us) {
  const std::string report = negotiate::StallReport(pending, now_us, options_.warning_us);
  if (report.empty() || now_us < next_warning_us_) return !report.empty();
  const bool is_known = warned_[set] == pending;
  LogLines(is_known ? negotiate::StallReminder(pending, now_us, options_.warning_us) : report);
  warned_[set] = pending;
  if (warnings_ == 0) options_.on_stall();
  return true;
}

void StallCheck::Judge(const Pending& pending, int64_t now_us) {
  if (Fail(pending, now_us, options_.failure_us, "")) return;
  if (options_.deadlock_us == 0 || options_.everybody_blocked_us() < options_.deadlock_us) return;
  Fail(pending, now_us, options_.deadlock_us,
       "deadlock: every rank waits in the library, so nobody can submit what is missing.\n");
}

// Nobody sequences messages: of those of other ranks this one knows nothing.
void StallCheck::JudgeMessages() {
  if (options_.deadlock_us == 0 || options_.everybody_blocked_us() < options_.deadlock_us) return;
  const std::string open = options_.open_messages();
  if (open.empty()) return;
  options_.on_failure(About(CauseKind::kStall, GlobalRank(),
                            "deadlock: every rank waits in the library, so nobody can send or "
                            "receive what is missing.\n" +
                                open));
}

// Ends the job when something has stalled for so long; whether it has.
bool StallCheck::Fail(const Pending& pending, int64_t now_us, int64_t limit_us,
                      const char* introduction) {
  if (limit_us == 0) return false;
  const std::string report = negotiate::StallReport(pending, now_us, limit_us);
  if (report.empty()) return false;
  const std::vector<GlobalRank> absent = negotiate::AbsentFromAll(pending, now_us, limit_us);
  const GlobalRank culprit = absent.size() == 1 ? absent.front() : GlobalRank();
  options_.on_failure(About(CauseKind::kStall, culprit, introduction + report));
  return true;
}

}  // namespace hvd
