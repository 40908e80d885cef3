#include "negotiate/lateness.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace hvd::negotiate {

namespace {

constexpr Micros kSecond = 1000000;
constexpr Micros kWindow = 10 * kSecond;
constexpr Micros kQuiet = 60 * kSecond;
constexpr size_t kLatest = 256;
// Fewer waits are pauses that any program makes: a checkpoint, an evaluation.
constexpr size_t kFewestWaits = 10;
constexpr int kLeastPercent = 20;

std::string Millis(Micros us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(us) / 1000);
  return text;
}

}  // namespace

std::string* Lateness::Note(Position member, Micros since, Micros now) {
  const Micros begin = std::min(std::max(since, counted_until_), now);
  counted_until_ = std::max(counted_until_, now);
  // A wait that began before this window counts in it, so the time before it does, too.
  window_start_ = window_start_ < 0 ? begin : std::min(window_start_, begin);
  if (begin == now) return nullptr;
  Member& late = late_[member];
  late.waited += now - begin;
  if (late.latest.size() < kLatest) {
    late.latest.push_back(now - since);
  } else {
    late.latest[late.waits % kLatest] = now - since;
  }
  ++late.waits;
  if (now - since <= late.longest) return nullptr;
  late.longest = now - since;
  return &late.name;
}

const Lateness::Straggler* Lateness::Take(Micros now) {
  if (window_start_ < 0 || now - window_start_ < kWindow) return nullptr;
  Judge(now - window_start_);
  late_.clear();
  window_start_ = now;
  if (!found_ || now < quiet_until_) return nullptr;
  quiet_until_ = now + kQuiet;
  return &straggler_;
}

void Lateness::Judge(Micros window) {
  found_ = false;
  if (late_.empty()) return;
  const auto latest = std::max_element(
      late_.begin(), late_.end(),
      [](const auto& a, const auto& b) { return a.second.waited < b.second.waited; });
  Member& member = latest->second;
  Micros waited = 0;
  for (const auto& [position, other] : late_) waited += other.waited;
  const auto percent = static_cast<int>(100 * member.waited / window);
  // Ranks that are late by turns are no stragglers.
  found_ =
      member.waits >= kFewestWaits && percent >= kLeastPercent && 3 * member.waited > 2 * waited;
  if (!found_) return;
  std::vector<Micros>& waits = member.latest;
  const auto middle = waits.begin() + static_cast<std::ptrdiff_t>(waits.size() / 2);
  std::nth_element(waits.begin(), middle, waits.end());
  straggler_ = {latest->first, member.waits, percent, *middle, member.longest, member.name};
}

std::string Describe(const Lateness::Straggler& straggler, GlobalRank rank) {
  return Name(rank) + " is late: p50 " + Millis(straggler.median) + ", " +
         std::to_string(straggler.waits) + " times, at most " + Millis(straggler.longest) +
         " on '" + Shown(straggler.name) + "'; the other ranks waited for it " +
         std::to_string(straggler.percent) +
         " % of the time. Look for what slows it: other programs on its cores, its input, its "
         "device.";
}

}  // namespace hvd::negotiate
