#include "settings/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <cmath>
#include <map>
#include <sstream>

#include "base/link.h"
#include "base/text.h"

namespace hvd {

bool ParseInteger(const std::string& text, int64_t lowest, int64_t highest, int64_t* value) {
  int64_t parsed;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < lowest || parsed > highest) return false;
  *value = parsed;
  return true;
}

// A stream in the classic locale and not strtod: a program may have set a locale with a decimal
// comma.
bool ParseNumber(const std::string& text, double lowest, double highest, double* value) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  double parsed;
  if (!(stream >> std::noskipws >> parsed) || stream.peek() != EOF) return false;
  if (!(parsed >= lowest && parsed <= highest)) return false;
  *value = parsed;
  return true;
}

bool ParseFlag(const std::string& text, bool* value) {
  std::string lower;
  for (unsigned char c : text) lower += static_cast<char>(std::tolower(c));
  int64_t number = 0;
  const bool is_number = ParseInteger(text, INT64_MIN, INT64_MAX, &number);
  const bool yes = number > 0 || lower == "true" || lower == "yes" || lower == "on";
  const bool no = (is_number && !yes) || lower == "false" || lower == "no" || lower == "off";
  if (yes || no) *value = yes;
  return yes || no;
}

bool ParseList(const std::string& text, std::vector<int>* values) {
  std::vector<int> parsed;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    int64_t value;
    if (!ParseInteger(text.substr(start, end - start), 0, INT_MAX, &value)) return false;
    parsed.push_back(static_cast<int>(value));
    start = end + 1;
  }
  *values = std::move(parsed);
  return true;
}

namespace {

constexpr double kDay = 86400;
constexpr double kShortestPeriod = 0.01;

using Parse = bool (*)(const std::string& text, Config* config);

// How a row's value gets into Config. Rows without a reader are read by Python alone.
struct ValueReader {
  const char* allowed;
  Parse parse;
};

template <double Config::*member>
bool Seconds(const std::string& text, Config* config) {
  return ParseNumber(text, 0, kDay, &(config->*member));
}

template <double Config::*member>
bool Period(const std::string& text, Config* config) {
  return ParseNumber(text, kShortestPeriod, kDay, &(config->*member));
}

// 0 is what Horovod takes for "at once".
bool StallCheck(const std::string& text, Config* config) {
  if (!ParseNumber(text, 0, kDay, &config->stall_check_seconds)) return false;
  config->stall_check_seconds = std::max(config->stall_check_seconds, kShortestPeriod);
  return true;
}

template <bool Config::*member>
bool Flag(const std::string& text, Config* config) {
  return ParseFlag(text, &(config->*member));
}

template <int64_t Config::*member>
bool Count(const std::string& text, Config* config) {
  return ParseInteger(text, 0, int64_t{1} << 60, &(config->*member));
}

template <std::string Config::*member>
bool Text(const std::string& text, Config* config) {
  config->*member = text;
  return true;
}

template <double Config::*member>
bool Milliseconds(const std::string& text, Config* config) {
  return ParseNumber(text, 0, 60'000, &(config->*member));
}

template <int64_t Config::*member, int64_t lowest>
bool Samples(const std::string& text, Config* config) {
  return ParseInteger(text, lowest, 1000, &(config->*member));
}

// What a chunk costs in flags, or in waiting of other process sets, is out of proportion beyond.
bool ChunkBytes(const std::string& text, Config* config) {
  return ParseInteger(text, 16 << 10, 1 << 20, &config->shm_chunk_bytes);
}

bool DataLinks(const std::string& text, Config* config) {
  return ParseInteger(text, 1, kMostStrands, &config->data_links);
}

bool StagingSlots(const std::string& text, Config* config) {
  return ParseInteger(text, 2, 16, &config->shm_staging_slots);
}

bool Noise(const std::string& text, Config* config) {
  return ParseNumber(text, 0, 1, &config->autotune_noise);
}

bool Transport(const std::string& text, Config* config) {
  static const std::map<std::string, TransportChoice> choices = {{"auto", TransportChoice::kAuto},
                                                                 {"shm", TransportChoice::kShm},
                                                                 {"tcp", TransportChoice::kTcp}};
  const auto found = choices.find(text);
  if (found == choices.end()) return false;
  config->transport = found->second;
  return true;
}

bool Level(const std::string& text, Config* config) {
  return ParseLogLevel(text, &config->log_level);
}
bool Affinity(const std::string& text, Config* config) {
  return ParseList(text, &config->thread_affinity);
}

constexpr char kFlagValues[] = "0 or 1";
constexpr char kMillisecondsValues[] = "milliseconds from 0 to 60000";
constexpr char kSecondsValues[] = "seconds from 0 to 86400";
constexpr char kPeriodValues[] = "seconds from 0.01 to 86400";
constexpr char kSamplesValues[] = "an integer from 0 to 1000";
constexpr char kBytesValues[] = "bytes, as an integer from 0 on";
constexpr char kCountValues[] = "an integer from 0 on";

const std::map<std::string, ValueReader>& ValueReaders() {
  static const std::map<std::string, ValueReader> readers = {
      {"HOROVOD_FUSION_THRESHOLD", {kBytesValues, Count<&Config::fusion_threshold>}},
      {"HOROVOD_CYCLE_TIME", {kMillisecondsValues, Milliseconds<&Config::cycle_time_ms>}},
      {"HOROVOD_BATCH_BYTES", {kBytesValues, Count<&Config::batch_bytes>}},
      {"HOROVOD_BATCH_WINDOW_MS", {kMillisecondsValues, Milliseconds<&Config::batch_window_ms>}},
      {"HOROVOD_DIRECT_BYTES", {kBytesValues, Count<&Config::direct_bytes>}},
      {"HOROVOD_CACHE_CAPACITY", {kCountValues, Count<&Config::cache_capacity>}},
      {"HOROVOD_LEARNED_SCHEDULE", {kFlagValues, Flag<&Config::learned_schedule>}},
      {"HOROVOD_AUTOTUNE", {kFlagValues, Flag<&Config::autotune>}},
      {"HOROVOD_AUTOTUNE_LOG", {"a path", Text<&Config::autotune_log>}},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
       {kSamplesValues, Samples<&Config::autotune_warmup_samples, 0>}},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
       {"an integer from 1 to 1000", Samples<&Config::autotune_steps_per_sample, 1>}},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
       {kSamplesValues, Samples<&Config::autotune_max_samples, 0>}},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", {"a number from 0 to 1", Noise}},
      {"HOROVOD_SHM_CHUNK_BYTES", {"bytes, as an integer from 16384 to 1048576", ChunkBytes}},
      {"HOROVOD_SHM_STAGING_SLOTS", {"an integer from 2 to 16", StagingSlots}},
      {"HOROVOD_DATA_LINKS", {"an integer from 1 to 4", DataLinks}},
      {"HOROVOD_ENCRYPT", {kFlagValues, Flag<&Config::encrypt>}},
      {"HOROVOD_TRANSPORT", {"auto, shm or tcp", Transport}},
      {"HOROVOD_LOG_LEVEL", {"trace, debug, info, warning, error or fatal", Level}},
      {"HOROVOD_LOG_HIDE_TIME", {kFlagValues, Flag<&Config::log_hide_time>}},
      {"HOROVOD_TIMELINE", {"a path", Text<&Config::timeline>}},
      {"HOROVOD_TIMELINE_MARK_CYCLES", {kFlagValues, Flag<&Config::timeline_mark_cycles>}},
      {"HOROVOD_STALL_CHECK_DISABLE", {kFlagValues, Flag<&Config::stall_check_disable>}},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", {kSecondsValues, StallCheck}},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
       {kSecondsValues, Seconds<&Config::stall_shutdown_seconds>}},
      {"HOROVOD_STALL_DEADLOCK_TIME_SECONDS",
       {kSecondsValues, Seconds<&Config::stall_deadlock_seconds>}},
      {"HOROVOD_THREAD_AFFINITY", {"core numbers with commas between", Affinity}},
      {"HOROVOD_FAILPOINT", {"name@count:rankR:action", Text<&Config::failpoint>}},
      {"HOROVOD_CHECK_NONFINITE", {kFlagValues, Flag<&Config::check_nonfinite>}},
      {"HOROVOD_CHECK_FIRST_STEP", {kFlagValues, Flag<&Config::check_first_step>}},
      {"HOROVOD_CHECK_PARAMETERS_EVERY",
       {"a number of steps, 0 for never", Count<&Config::check_parameters_every>}},
      {"HOROVOD_HEARTBEAT_SECONDS", {kPeriodValues, Period<&Config::heartbeat_seconds>}},
      {"HOROVOD_ELASTIC", {kFlagValues, Flag<&Config::elastic>}},
      {"HOROVOD_PEER_TIMEOUT_SECONDS", {kPeriodValues, Period<&Config::peer_timeout_seconds>}},
      {"HOROVOD_STOPPED_TIMEOUT_SECONDS",
       {kSecondsValues, Seconds<&Config::stopped_timeout_seconds>}},
      {"HOROVOD_GLOO_TIMEOUT_SECONDS", {kPeriodValues, Period<&Config::gloo_timeout_seconds>}},
      {"HOROVOD_START_TIMEOUT", {kPeriodValues, Period<&Config::start_timeout_seconds>}},
  };
  return readers;
}

Status BadValue(const char* variable, const std::string& value, const std::string& allowed) {
  return Status::Invalid(std::string(variable) + "=" + Shown(value) + ": expected " + allowed);
}

}  // namespace

Status ReadConfig(const Lookup& lookup, Config* config) {
  for (const Setting& setting : SettingsTable()) {
    const auto reader = ValueReaders().find(setting.variable);
    if (reader == ValueReaders().end()) continue;
    const char* value = lookup(setting.variable);
    if (value == nullptr || *value == '\0') continue;
    if (!reader->second.parse(value, config))
      return BadValue(setting.variable, value, reader->second.allowed);
  }
  config->heartbeat_seconds = std::min(config->heartbeat_seconds, config->peer_timeout_seconds / 2);
  return Status::Ok();
}

Status CheckSetting(const std::string& variable, const std::string& value) {
  Config config;
  const auto reader = ValueReaders().find(variable);
  if (reader == ValueReaders().end() || value.empty() || reader->second.parse(value, &config))
    return Status::Ok();
  return BadValue(variable.c_str(), value, reader->second.allowed);
}

}  // namespace hvd
