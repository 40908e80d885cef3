#pragma once

#include <string>
#include <string_view>

namespace hvd {

enum class LogLevel { kTrace = 0, kDebug, kInfo, kWarning, kError, kFatal };

// What is below this level is dropped. kWarning until set.
void SetLogLevel(LogLevel level);
void SetLogRank(int rank);  // -1 = not known
void SetLogHideTime(bool hide);

// Whether a record of that level is written; ask before building a costly text.
bool Logs(LogLevel level);

// One record is one line on stderr, written whole by one system call, so that the lines of several
// processes never mix: "2026-11-20 09:25:17.123456 [0] warning: text". What the text must not bring
// to a terminal is escaped (base/text.h), line breaks too. Without memory for it there is no line.
// Never waits for longer than a moment: see LineWriter for a stderr that takes nothing.
void Log(LogLevel level, std::string_view text) noexcept;

// The same for what the user has asked for, at any level: "2026-11-20 09:25:17.123456 [0] info:
// text".
void Tell(std::string_view text) noexcept;

// The line itself, for a given wall-clock time.
std::string FormatLogLine(LogLevel level, std::string_view text, long long wall_micros);

// "WARNING" or "warning". False when there is no such level.
bool ParseLogLevel(std::string_view text, LogLevel* level);

}  // namespace hvd
