#include "settings/config.h"

#include <array>
#include <map>
#include <set>

#include "check.h"

namespace hvd {
namespace {

using Environment = std::map<std::string, std::string>;

Status Read(const Environment& environment, Config* config) {
  return ReadConfig(
      [&](const char* variable) {
        const auto found = environment.find(variable);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      config);
}

bool SameConfig(const Config& a, const Config& b) {
  return a.fusion_threshold == b.fusion_threshold && a.cycle_time_ms == b.cycle_time_ms &&
         a.cache_capacity == b.cache_capacity && a.transport == b.transport &&
         a.shm_chunk_bytes == b.shm_chunk_bytes && a.shm_staging_slots == b.shm_staging_slots &&
         a.log_level == b.log_level && a.log_hide_time == b.log_hide_time &&
         a.timeline == b.timeline && a.timeline_mark_cycles == b.timeline_mark_cycles &&
         a.stall_check_disable == b.stall_check_disable &&
         a.stall_check_seconds == b.stall_check_seconds &&
         a.stall_shutdown_seconds == b.stall_shutdown_seconds &&
         a.thread_affinity == b.thread_affinity && a.failpoint == b.failpoint &&
         a.heartbeat_seconds == b.heartbeat_seconds &&
         a.peer_timeout_seconds == b.peer_timeout_seconds &&
         a.stopped_timeout_seconds == b.stopped_timeout_seconds && a.autotune == b.autotune &&
         a.autotune_log == b.autotune_log &&
         a.autotune_warmup_samples == b.autotune_warmup_samples &&
         a.autotune_steps_per_sample == b.autotune_steps_per_sample &&
         a.autotune_max_samples == b.autotune_max_samples && a.autotune_noise == b.autotune_noise;
}

TEST(config, NothingSetGivesTheDefaults) {
  Config config;
  ASSERT_OK(Read({}, &config));
  EXPECT_TRUE(SameConfig(config, Config{}));
  ASSERT_OK(Read({{"HOROVOD_CYCLE_TIME", ""}, {"HOROVOD_TRANSPORT", ""}}, &config));
  EXPECT_TRUE(SameConfig(config, Config{}));
}

// The defaults that the table shows are those that Config starts with.
TEST(config, TheTableTellsTheDefaults) {
  Environment shown;
  for (const Setting& setting : SettingsTable()) shown[setting.variable] = setting.default_value;
  Config config;
  config.fusion_threshold = 1;
  config.cycle_time_ms = 2;
  config.transport = TransportChoice::kTcp;
  config.shm_chunk_bytes = config.shm_staging_slots = 6;
  config.log_level = LogLevel::kFatal;
  config.log_hide_time = config.timeline_mark_cycles = config.stall_check_disable = true;
  config.stall_check_seconds = config.stall_shutdown_seconds = 3;
  config.heartbeat_seconds = config.peer_timeout_seconds = config.stopped_timeout_seconds = 4;
  config.autotune = true;
  config.autotune_warmup_samples = config.autotune_steps_per_sample = config.autotune_max_samples =
      5;
  config.autotune_noise = 0.5;
  ASSERT_OK(Read(shown, &config));
  EXPECT_TRUE(SameConfig(config, Config{}));
}

TEST(config, ValuesAreRead) {
  Config c;
  ASSERT_OK(Read({{"HOROVOD_FUSION_THRESHOLD", "0"},
                  {"HOROVOD_CYCLE_TIME", "0.25"},
                  {"HOROVOD_CACHE_CAPACITY", "1024"},
                  {"HOROVOD_TRANSPORT", "tcp"},
                  {"HOROVOD_SHM_CHUNK_BYTES", "16384"},
                  {"HOROVOD_SHM_STAGING_SLOTS", "16"},
                  {"HOROVOD_LOG_LEVEL", "DEBUG"},
                  {"HOROVOD_LOG_HIDE_TIME", "1"},
                  {"HOROVOD_TIMELINE", "/a b.json"},
                  {"HOROVOD_TIMELINE_MARK_CYCLES", "True"},
                  {"HOROVOD_STALL_CHECK_DISABLE", "on"},
                  {"HOROVOD_STALL_CHECK_TIME_SECONDS", "2"},
                  {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5e1"},
                  {"HOROVOD_THREAD_AFFINITY", "3,0,17"},
                  {"HOROVOD_FAILPOINT", "chunk@1:rank0:stop"},
                  {"HOROVOD_HEARTBEAT_SECONDS", "0.5"},
                  {"HOROVOD_PEER_TIMEOUT_SECONDS", "1"}},
                 &c));
  EXPECT_EQ(c.fusion_threshold, 0);
  EXPECT_EQ(c.cycle_time_ms, 0.25);
  EXPECT_EQ(c.cache_capacity, 1024);
  EXPECT_TRUE(c.transport == TransportChoice::kTcp && c.log_level == LogLevel::kDebug);
  EXPECT_EQ(c.shm_chunk_bytes, 16384);
  EXPECT_EQ(c.shm_staging_slots, 16);
  EXPECT_TRUE(c.log_hide_time && c.timeline_mark_cycles && c.stall_check_disable);
  EXPECT_EQ(c.timeline, "/a b.json");
  EXPECT_EQ(c.stall_check_seconds, 2.0);
  EXPECT_EQ(c.stall_shutdown_seconds, 50.0);
  EXPECT_TRUE((c.thread_affinity == std::vector<int>{3, 0, 17}));
  EXPECT_EQ(c.failpoint, "chunk@1:rank0:stop");
  EXPECT_EQ(c.heartbeat_seconds, 0.5);
  EXPECT_EQ(c.peer_timeout_seconds, 1.0);
}

TEST(config, AutotuneIsRead) {
  Config c;
  ASSERT_OK(Read({{"HOROVOD_AUTOTUNE", "1"},
                  {"HOROVOD_AUTOTUNE_LOG", "/tune.csv"},
                  {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0"},
                  {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "7"},
                  {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "60"},
                  {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25"}},
                 &c));
  EXPECT_TRUE(c.autotune);
  EXPECT_EQ(c.autotune_log, "/tune.csv");
  EXPECT_EQ(c.autotune_warmup_samples, 0);
  EXPECT_EQ(c.autotune_steps_per_sample, 7);
  EXPECT_EQ(c.autotune_max_samples, 60);
  EXPECT_EQ(c.autotune_noise, 0.25);
}

TEST(config, ABadValueIsShownInShort) {
  Config config;
  const Status status =
      Read({{"HOROVOD_CYCLE_TIME", "\x1b[2J\n" + std::string(5000, 'x')}}, &config);
  EXPECT_TRUE(status.message().size() < 400);
  EXPECT_TRUE(status.message().find_first_of("\x1b\n") == std::string::npos);
}

TEST(config, BadValuesNameTheVariableAndWhatIsAllowed) {
  const std::vector<std::array<std::string, 3>> bad = {
      {"HOROVOD_FUSION_THRESHOLD", "64MB", "bytes"},
      {"HOROVOD_FUSION_THRESHOLD", "-1", "integer"},
      {"HOROVOD_FUSION_THRESHOLD", "1e6", "integer"},
      {"HOROVOD_FUSION_THRESHOLD", " 1", "integer"},
      {"HOROVOD_CACHE_CAPACITY", "99999999999999999999", "integer"},
      {"HOROVOD_CYCLE_TIME", "-0.1", "milliseconds"},
      {"HOROVOD_BATCH_WINDOW_MS", "-0.1", "milliseconds"},
      {"HOROVOD_BATCH_BYTES", "8M", "bytes"},
      {"HOROVOD_DIRECT_BYTES", "-1", "bytes"},
      {"HOROVOD_CYCLE_TIME", "1,5", "milliseconds"},
      {"HOROVOD_CYCLE_TIME", "nan", "milliseconds"},
      {"HOROVOD_CYCLE_TIME", "1 ", "milliseconds"},
      {"HOROVOD_TRANSPORT", "rdma", "auto, shm or tcp"},
      {"HOROVOD_AUTOTUNE", "maybe", "0 or 1"},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "-1", "integer"},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "0", "integer"},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "1e1", "integer"},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.01", "from 0 to 1"},
      {"HOROVOD_LOG_LEVEL", "loud", "trace, debug"},
      {"HOROVOD_LOG_HIDE_TIME", "2x", "0 or 1"},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", "-1", "seconds"},
      {"HOROVOD_CHECK_NONFINITE", "maybe", "0 or 1"},
      {"HOROVOD_CHECK_PARAMETERS_EVERY", "-1", "number of steps"},
      {"HOROVOD_THREAD_AFFINITY", "1,,2", "core numbers"},
      {"HOROVOD_THREAD_AFFINITY", "1,", "core numbers"},
      {"HOROVOD_PEER_TIMEOUT_SECONDS", "inf", "seconds"},
  };
  for (const auto& [variable, value, allowed] : bad) {
    Config config;
    const Status status = Read({{variable, value}}, &config);
    if (!EXPECT_TRUE(status.code() == Code::kInvalidArgument))
      std::printf("  %s=%s\n", variable.c_str(), value.c_str());
    EXPECT_TRUE(status.message().find(variable + "=") == 0);
    EXPECT_TRUE(status.message().find(allowed) != std::string::npos);
    EXPECT_EQ(CheckSetting(variable, value).message(), status.message());
  }
  ASSERT_OK(CheckSetting("HOROVOD_CYCLE_TIME", "2"));
  ASSERT_OK(CheckSetting("HOROVOD_RANK", "anything"));  // not read by the core
}

// As Horovod 0.28 takes them.
TEST(config, ValuesOfHorovodAreTakenWithTheirMeaning) {
  for (const auto& [value, level] :
       std::map<std::string, LogLevel>{{"WARN", LogLevel::kWarning}, {"Error", LogLevel::kError}}) {
    Config config;
    ASSERT_OK(Read({{"HOROVOD_LOG_LEVEL", value}}, &config));
    EXPECT_TRUE(config.log_level == level);
  }
  for (const auto& [value, is_set] :
       std::map<std::string, bool>{{"2", true}, {"1", true}, {"0", false}, {"-1", false}}) {
    Config config;
    config.autotune = !is_set;
    ASSERT_OK(Read({{"HOROVOD_AUTOTUNE", value}}, &config));
    EXPECT_EQ(config.autotune, is_set);
  }
  Config config;
  ASSERT_OK(Read({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"}}, &config));
  EXPECT_TRUE(config.stall_check_seconds > 0 && config.stall_check_seconds < 0.1);
}

TEST(config, HeartbeatsAreTwiceAsFrequentAsTheTimeout) {
  Config config;
  ASSERT_OK(Read({{"HOROVOD_PEER_TIMEOUT_SECONDS", "1.5"}}, &config));
  EXPECT_EQ(config.heartbeat_seconds, 0.75);
}

TEST(config, EveryRowIsNamedOnceAndExplained) {
  std::set<std::string> names;
  const std::set<std::string> types = {"integer", "bytes", "number", "flag",  "choice",
                                       "path",    "text",  "list",   "secret"};
  for (const Setting& setting : SettingsTable()) {
    EXPECT_TRUE(names.insert(setting.variable).second);
    EXPECT_TRUE(std::string(setting.variable).rfind("HOROVOD_", 0) == 0);
    EXPECT_TRUE(types.count(setting.type) == 1);
    EXPECT_TRUE(std::string(setting.help).size() > 10);
  }
}

}  // namespace
}  // namespace hvd
