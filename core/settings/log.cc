#include "settings/log.h"

#include <pthread.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/status.h"
#include "base/text.h"
#include "settings/line_writer.h"

namespace hvd {

namespace {

constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};

std::atomic<LogLevel> lowest{LogLevel::kWarning};
std::atomic<int> own_rank{-1};
std::atomic<bool> hide_time{false};

std::string FormatTime(long long wall_micros) {
  const time_t seconds = static_cast<time_t>(wall_micros / 1'000'000);
  tm local;
  localtime_r(&seconds, &local);
  char date[32];
  const size_t length = strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%06d ", static_cast<int>(wall_micros % 1'000'000));
  return std::string(date, length) + fraction;
}

std::string LineNow(LogLevel level, std::string_view text) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return FormatLogLine(level, text, now.tv_sec * 1'000'000LL + now.tv_nsec / 1000);
}

std::string LineOfLoss(size_t lines) {
  return LineNow(LogLevel::kWarning,
                 std::to_string(lines) + (lines == 1 ? " line" : " lines") +
                     " of this log came while standard error took nothing, and are lost");
}

LineWriter* NewWriter() {
  LineWriter::Options options;
  options.fd = STDERR_FILENO;
  options.loss = LineOfLoss;
  return new LineWriter(options);
}

// Never destroyed: threads may log until the very end.
LineWriter* writer = nullptr;

// A forked child has no thread of its parent's; what that has not written is the parent's to write.
LineWriter* Writer() {
  static const bool made = [] {
    writer = NewWriter();
    pthread_atfork(nullptr, nullptr, [] { writer = NewWriter(); });
    atexit([] { writer->Flush(); });
    return true;
  }();
  return made ? writer : nullptr;
}

// Without memory for it the program is told less, and goes on.
void Write(LogLevel level, std::string_view text) noexcept {
  HasMemoryFor([&] { Writer()->Put(LineNow(level, text)); });
}

}  // namespace

void SetLogLevel(LogLevel level) { lowest = level; }
void SetLogRank(int rank) { own_rank = rank; }
void SetLogHideTime(bool hide) { hide_time = hide; }

bool Logs(LogLevel level) { return level >= lowest.load(std::memory_order_relaxed); }

std::string FormatLogLine(LogLevel level, std::string_view text, long long wall_micros) {
  std::string line = hide_time ? "" : FormatTime(wall_micros);
  if (own_rank >= 0) line += "[" + std::to_string(own_rank) + "] ";
  line += kNames[static_cast<int>(level)];
  line += ": ";
  return line + Escaped(text) + "\n";
}

void Log(LogLevel level, std::string_view text) noexcept {
  if (Logs(level)) Write(level, text);
}

void Tell(std::string_view text) noexcept { Write(LogLevel::kInfo, text); }

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  if (text.size() == 4 && strncasecmp(text.data(), "warn", 4) == 0) {
    *level = LogLevel::kWarning;
    return true;
  }
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (text.size() != std::string_view(kNames[i]).size()) continue;
    if (strncasecmp(text.data(), kNames[i], text.size()) != 0) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

}  // namespace hvd
