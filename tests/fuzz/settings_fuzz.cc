// Values of settings, as the environment may hold them: taken within their bounds, or refused by a
// message of bounded length that names the variable.

#include <cmath>
#include <map>

#include "settings/config.h"
#include "settings/failpoint.h"
#include "target.h"
#include "utf8.h"

namespace hvd {
namespace {

using namespace fuzz;

constexpr size_t kLongestRefusal = 1024;

void CheckBounds(const Config& config) {
  const auto seconds = [](double value) { return value >= 0 && value <= 86400; };
  REQUIRE(config.fusion_threshold >= 0);
  REQUIRE(config.cache_capacity >= kUnbounded);
  REQUIRE(config.cycle_time_ms >= 0 && config.cycle_time_ms <= 60000);
  REQUIRE(config.autotune_steps_per_sample >= 1 && config.autotune_steps_per_sample <= 1000);
  REQUIRE(config.autotune_noise >= 0 && config.autotune_noise <= 1);
  REQUIRE(seconds(config.stall_check_seconds) && config.stall_check_seconds > 0);
  REQUIRE(seconds(config.stall_shutdown_seconds));
  REQUIRE(seconds(config.peer_timeout_seconds) && seconds(config.start_timeout_seconds));
  REQUIRE(config.peer_timeout_seconds >= 2 * config.heartbeat_seconds);
  for (const int core : config.thread_affinity) REQUIRE(core >= 0);
}

void CheckRefusal(const Status& status, std::string_view variable) {
  REQUIRE(status.code() == Code::kInvalidArgument);
  REQUIRE_THAT(status.message().size() <= kLongestRefusal, status.message());
  REQUIRE_THAT(IsHarmless(status.message()), status.message());
  REQUIRE_THAT(Contains(status.message(), variable), status.message());
}

// What is taken is the same number when it is written down and read again.
void CheckNumbers(const std::string& text) {
  int64_t integer = 0;
  if (ParseInteger(text, INT64_MIN, INT64_MAX, &integer)) {
    int64_t again = 0;
    REQUIRE(ParseInteger(std::to_string(integer), integer, integer, &again) && again == integer);
  }
  double number = 0;
  if (ParseNumber(text, -1e9, 1e9, &number))
    REQUIRE(std::isfinite(number) && std::fabs(number) <= 1e9);
}

void CheckFailpoint(const std::string& spec) {
  const Status status = failpoint::Arm(spec, -1);  // no rank: it is never armed
  if (!status.ok()) CheckRefusal(status, "HOROVOD_FAILPOINT");
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  fuzz::Input input(data, size);
  const std::vector<Setting>& table = SettingsTable();
  std::map<std::string, std::string> values;
  std::string last;
  while (!input.empty()) {
    const Setting& setting = table[input.Below(table.size())];
    // As the environment gives it: up to the first NUL.
    last = std::string(input.Text(300)).c_str();
    values[setting.variable] = last;
  }
  Config config;
  const auto lookup = [&](const char* variable) {
    const auto found = values.find(variable);
    return found == values.end() ? nullptr : found->second.c_str();
  };
  const Status status = ReadConfig(lookup, &config);
  if (status.ok()) {
    CheckBounds(config);
  } else {
    CheckRefusal(status, "HOROVOD_");
  }
  CheckNumbers(last);
  CheckFailpoint(last);
  return 0;
}
