#include "settings/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "check.h"

namespace hvd {
namespace {

// What `body` writes to stderr; empty when it writes nothing.
template <typename Body>
std::string Stderr(Body body) {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) return "no pipe";
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  char text[4096];
  const ssize_t bytes = read(ends[0], text, sizeof text);
  close(ends[0]);
  close(ends[1]);
  return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : "";
}

TEST(log, Line) {
  setenv("TZ", "UTC", 1);
  tzset();
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "text", 1'000'000'000'000'042),
            "2001-09-09 01:46:40.000042 warning: text\n");
  SetLogHideTime(true);
  SetLogRank(3);
  EXPECT_EQ(FormatLogLine(LogLevel::kFatal, "two\nlines\r", 0), "[3] fatal: two\\nlines\\r\n");
  SetLogRank(-1);
  EXPECT_EQ(FormatLogLine(LogLevel::kTrace, "", 0), "trace: \n");
}

TEST(log, Levels) {
  SetLogHideTime(true);
  SetLogLevel(LogLevel::kError);
  EXPECT_EQ(Stderr([] { Log(LogLevel::kWarning, "dropped"); }), "");
  EXPECT_EQ(Stderr([] { Log(LogLevel::kError, "kept"); }), "error: kept\n");
  EXPECT_FALSE(Logs(LogLevel::kWarning));
  SetLogLevel(LogLevel::kTrace);
  EXPECT_EQ(Stderr([] { Log(LogLevel::kTrace, "kept"); }), "trace: kept\n");
  SetLogLevel(LogLevel::kWarning);
}

TEST(log, LevelNames) {
  LogLevel level = LogLevel::kTrace;
  EXPECT_TRUE(ParseLogLevel("FATAL", &level) && level == LogLevel::kFatal);
  EXPECT_TRUE(ParseLogLevel("info", &level) && level == LogLevel::kInfo);
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_TRUE(ParseLogLevel("warn", &level) && level == LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("warnings", &level));
  EXPECT_TRUE(level == LogLevel::kWarning);
}

}  // namespace
}  // namespace hvd
