#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "settings/log.h"

namespace hvd {

// One row of the one table of settings; the documentation and the launcher's checks come from it
// too. `type` is what a value looks like: integer, bytes, number, flag, choice, path, text, list,
// secret.
struct Setting {
  const char* variable;
  const char* type;
  const char* default_value;  // "" = unset
  const char* help;
};

const std::vector<Setting>& SettingsTable();

enum class TransportChoice : uint8_t { kAuto, kShm, kTcp };

constexpr int64_t kUnbounded = -1;
constexpr int64_t kUnset = -1;  // the library chooses

// The settings that the core reads. The initial values are the defaults of the table.
struct Config {
  int64_t fusion_threshold = 128 << 20;  // bytes
  double cycle_time_ms = 1.0;
  int64_t batch_bytes = kUnset;
  bool learned_schedule = true;
  double batch_window_ms = kUnset;
  int64_t direct_bytes = kUnset;
  int64_t cache_capacity = kUnbounded;  // 0 = no cache
  TransportChoice transport = TransportChoice::kAuto;
  bool encrypt = false;
  int64_t data_links = 1;
  int64_t shm_chunk_bytes = 128 << 10;
  int64_t shm_staging_slots = 4;
  LogLevel log_level = LogLevel::kWarning;
  bool log_hide_time = false;
  std::string timeline;  // path; empty = none
  bool timeline_mark_cycles = false;
  bool autotune = false;
  std::string autotune_log;  // path; empty = none
  int64_t autotune_warmup_samples = 3;
  int64_t autotune_steps_per_sample = 10;
  int64_t autotune_max_samples = 20;
  double autotune_noise = 0.8;
  bool stall_check_disable = false;
  double stall_check_seconds = 10.0;
  double stall_shutdown_seconds = 0.0;   // 0 = never
  double stall_deadlock_seconds = 60.0;  // 0 = never
  std::vector<int> thread_affinity;      // a core per local rank; empty = anywhere
  std::string failpoint;
  double heartbeat_seconds = 1.0;
  double peer_timeout_seconds = 6.0;
  double stopped_timeout_seconds = 600.0;
  double start_timeout_seconds = 30.0;
  double gloo_timeout_seconds = 30.0;
  bool elastic = false;
  // For Python alone.
  bool check_nonfinite = false;
  bool check_first_step = true;
  int64_t check_parameters_every = 0;  // steps; 0 = never
};

// The value of a variable or null, as getenv.
using Lookup = std::function<const char*(const char* variable)>;

// Reads each variable once. Unset or empty = the default. A bad value is an error that names the
// variable and what is allowed; *config is then unspecified. Heartbeats are at least twice as
// frequent as the time without any that a peer is granted.
Status ReadConfig(const Lookup& lookup, Config* config);

// The error that ReadConfig gives for this value alone, for whoever needs the variable before there
// is an engine.
Status CheckSetting(const std::string& variable, const std::string& value);

// The whole text is one value of the kind, within the bounds; else false and *value is untouched.
bool ParseInteger(const std::string& text, int64_t lowest, int64_t highest, int64_t* value);
bool ParseNumber(const std::string& text, double lowest, double highest, double* value);
bool ParseFlag(const std::string& text, bool* value);  // true/false, yes/no, on/off, a number
bool ParseList(const std::string& text, std::vector<int>* values);  // "0,2,4"

}  // namespace hvd
