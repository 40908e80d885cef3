#include "settings/log.h"

#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <new>

#include "base/text.h"

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

void Write(LogLevel level, std::string_view text) noexcept try {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string line =
      FormatLogLine(level, text, now.tv_sec * 1'000'000LL + now.tv_nsec / 1000);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
} catch (const std::bad_alloc&) {
  // The program that is told less goes on.
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
