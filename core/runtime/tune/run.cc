#include "runtime/tune/run.h"

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "settings/log.h"
#include "settings/output_file.h"

namespace hvd {

namespace {

constexpr double kMebibyte = 1 << 20;
// One choice takes time by the cube of the samples, and all other operations wait for it.
constexpr int64_t kMostSearchSamples = 200;
constexpr char kColumns[] =
    "sample,fusion_threshold_mb,window_ms,direct_bytes,score_bytes_per_us,best\n";

AutotuneOptions OptionsFrom(const AutotuneSettings& settings, const Tuned& start) {
  AutotuneOptions options = SearchSpace(start, settings.longest_window_us);
  options.warmup_samples = settings.warmup_samples;
  options.search_samples = std::min(settings.search_samples, kMostSearchSamples);
  options.noise = settings.noise;
  return options;
}

// Without the program's locale, which may have a decimal comma.
std::string Line(int64_t sample, const Tuned& values, std::optional<double> score, bool best) {
  std::ostringstream line;
  line.imbue(std::locale::classic());
  line << sample << ',' << static_cast<double>(values.fusion_threshold) / kMebibyte << ','
       << static_cast<double>(values.window_us) / 1000.0 << ',' << values.direct_bytes << ',';
  if (score) line << *score;
  line << ',' << best << '\n';
  return line.str();
}

}  // namespace

// As when they are tuned, a batch closes when it fills one collective.
std::string SettingsFor(const Tuned& values) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "HOROVOD_FUSION_THRESHOLD=" << values.fusion_threshold;
  if (values.fusion_threshold > 0) text << " HOROVOD_BATCH_BYTES=" << values.fusion_threshold;
  text << " HOROVOD_BATCH_WINDOW_MS=" << static_cast<double>(values.window_us) / 1000.0
       << " HOROVOD_DIRECT_BYTES=" << values.direct_bytes;
  return text.str();
}

AutotuneRun::AutotuneRun(const AutotuneSettings& settings, const Tuned& start)
    : search_(OptionsFrom(settings, start)), meter_(settings.steps_per_sample) {
  if (!settings.log.empty()) Open(settings.log);
}

AutotuneRun::~AutotuneRun() {
  if (search_.done()) return;
  Tell("autotune: the job has ended before the search, after " + std::to_string(search_.samples()) +
       " samples; the best so far: " + SettingsFor(search_.best()));
}

bool AutotuneRun::Add(uint32_t id, int64_t bytes, int64_t now_us) {
  if (search_.done()) return false;
  const std::optional<double> score = meter_.Add(id, bytes, now_us);
  if (!score) return false;
  const Tuned measured = search_.values();
  search_.Add(*score);
  Record(measured, *score);
  if (search_.values() == measured) return false;
  meter_.Restart();
  return true;
}

void AutotuneRun::Open(const std::string& path) {
  int fd = -1;
  const Status status = OpenOutputFile(path, "HOROVOD_AUTOTUNE_LOG", &fd);
  if (!status.ok()) return Log(LogLevel::kWarning, status.message());
  LineWriter::Options options;
  options.fd = fd;
  options.owns = true;
  options.on_error = [](int error) {
    errno = error;
    Log(LogLevel::kWarning,
        Status::Errno("HOROVOD_AUTOTUNE_LOG").message() + "; no more is written there");
  };
  log_.emplace(std::move(options));
  Write(kColumns);
}

// The last line has no score: it holds the values that stay.
void AutotuneRun::Record(const Tuned& measured, double score) {
  Write(Line(search_.samples(), measured, score, search_.best() == measured));
  if (!search_.done()) return;
  Write(Line(search_.samples(), search_.values(), std::nullopt, true));
  Tell("autotune: found the fastest values in " + std::to_string(search_.samples()) +
       " samples and uses them from here on. To keep them, set instead of HOROVOD_AUTOTUNE: " +
       SettingsFor(search_.values()));
}

void AutotuneRun::Write(std::string line) {
  if (log_) log_->Put(std::move(line));
}

}  // namespace hvd
