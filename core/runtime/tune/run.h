#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/tune/autotune.h"
#include "runtime/tune/meter.h"
#include "settings/line_writer.h"

namespace hvd {

struct AutotuneSettings {
  int64_t warmup_samples = 3;
  int64_t steps_per_sample = 10;
  int64_t search_samples = 20;
  double noise = 0.8;
  int64_t longest_window_us = 1000;  // also where it starts
  std::string log;                   // path; empty = none
};

// The settings by which a job has these values from its start, as one writes them in a shell.
std::string SettingsFor(const Tuned& values);

// Tuning on live traffic, on the rank of the sequencer: the meter's scores go to the search and,
// with what they are scores of, to a file of comma-separated values.
class AutotuneRun {
 public:
  // A log that cannot be written is warned about once and forgotten.
  AutotuneRun(const AutotuneSettings& settings, const Tuned& start);
  // Says so when the job has ended before the search.
  ~AutotuneRun();

  const Tuned& values() const { return search_.values(); }
  bool done() const { return search_.done(); }
  int64_t samples() const { return search_.samples(); }

  // See AutotuneMeter::Add. True: the values have changed.
  bool Add(uint32_t id, int64_t bytes, int64_t now_us);

 private:
  void Open(const std::string& path);
  void Record(const Tuned& measured, double score);
  void Write(std::string line);

  Autotune search_;
  AutotuneMeter meter_;
  std::optional<LineWriter> log_;  // none, where it cannot be written
};

}  // namespace hvd
