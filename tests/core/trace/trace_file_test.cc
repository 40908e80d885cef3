// The file of a timeline: whole at every moment, also where the process or the disk comes to its
// end.
#include "trace/trace_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "check.h"
#include "json_check.h"
#include "trace/timeline.h"

namespace hvd {
namespace {

struct TemporaryFile {
  TemporaryFile()
      : path(std::filesystem::temp_directory_path() / ("hvd_trace_" + std::to_string(getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string Read() const {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string path;
};

bool Whole(const std::string& text) { return check::JsonCheck(text).Whole(); }

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(JsonCheck, TellsWholeFromBroken) {
  for (const char* text :
       {"[]", "[1, -2.5e3]\n", R"([{"a":"\"\u00fc\\","b":[{}]}, true])", " [ 1 \n ]  "}) {
    EXPECT_TRUE(Whole(text));
  }
  for (const char* text : {"", "[", "[1,]", "[1]]", "[1 2]", "[\"a]", R"(["\u00g0"])", R"(["\x"])",
                           "[{\"a\"}]", "[1],", "[\"\n\"]"}) {
    if (!EXPECT_FALSE(Whole(text))) std::printf("  %s\n", text);
  }
}

// The wall clock of a machine may be set before the monotonic one began.
TEST(TraceText, MicrosecondsMayBeNegative) {
  const auto micros = [](int64_t nanos) {
    std::string json;
    AppendMicros(nanos, &json);
    return json;
  };
  EXPECT_EQ(micros(1234567), "1234.567");
  EXPECT_EQ(micros(-1234567), "-1234.567");
  EXPECT_EQ(micros(-7), "-0.007");
  EXPECT_EQ(micros(INT64_MIN), "-9223372036854775.808");
}

TEST(TraceText, EscapesEverythingButAscii) {
  const auto quoted = [](std::string_view text) {
    std::string json;
    AppendQuoted(text, &json);
    return json;
  };
  EXPECT_EQ(quoted("a \"b\"\\\n\t\x7f"), R"("a \"b\"\\\u000a\u0009\u007f")");
  EXPECT_EQ(quoted("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82"),
            R"("gr\u00fc\u00df \u20ac \ud83d\ude42")");
  // Cut off, a stray byte, overlong, a surrogate, too large.
  EXPECT_EQ(quoted("x\xe2\x82"), R"("x\ufffd\ufffd")");
  EXPECT_EQ(quoted("\x80y"), R"("\ufffdy")");
  EXPECT_EQ(quoted("\xc0\xaf"), R"("\ufffd\ufffd")");
  EXPECT_EQ(quoted("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");
  EXPECT_EQ(quoted("\xf4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
  EXPECT_EQ(quoted(std::string_view("\0", 1)), R"("\u0000")");
  std::string micros;
  AppendMicros(1234007, &micros);
  EXPECT_EQ(micros, "1234.007");
}

TEST(TraceFile, IsWholeAfterEveryCall) {
  TemporaryFile temporary;
  std::mt19937 random(1);
  TraceFile file;
  ASSERT_OK(file.Open(temporary.path, "0"));
  EXPECT_TRUE(Whole(temporary.Read()));
  int elements = 1;
  size_t longest = 0;
  for (int i = 0; i < 400; ++i, ++elements) {
    file.Append("\"" + std::string(random() % (TraceFile::kLongest - 2), 'x') + "\"");
    if (random() % 3 == 0) file.Flush();
    const std::string text = temporary.Read();
    if (!EXPECT_TRUE(Whole(text))) return;
    longest = std::max(longest, text.size());
  }
  ASSERT_OK(file.status());
  EXPECT_TRUE(longest > 2 * TraceFile::kReserved);
  file.Close();
  const std::string text = temporary.Read();
  EXPECT_TRUE(Whole(text));
  EXPECT_EQ(Count(text, ",\n"), elements - 1);
  EXPECT_EQ(text.substr(text.size() - 3), "\n]\n");
}

TEST(TraceFile, ClosesAtEveryPlaceOfAPage) {
  TemporaryFile temporary;
  for (size_t length = 3980; length <= TraceFile::kLongest; ++length) {
    for (const bool flushed : {false, true}) {
      TraceFile file;
      ASSERT_OK(file.Open(temporary.path, "0"));
      for (int i = 0; i < 2; ++i) file.Append("\"" + std::string(length - 2, 'x') + "\"");
      if (flushed) file.Flush();
      file.Append("7");
      file.Close();
      const std::string text = temporary.Read();
      EXPECT_TRUE(Whole(text));
      EXPECT_EQ(Count(text, ",\n"), 3);
    }
  }
}

// The text that `body` writes to standard error.
std::string ErrorsOf(const std::function<void()>& body) {
  TemporaryFile errors;
  errors.path += ".err";
  const int before = dup(STDERR_FILENO);
  const int file = open(errors.path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  dup2(file, STDERR_FILENO);
  body();
  dup2(before, STDERR_FILENO);
  close(before);
  close(file);
  return errors.Read();
}

void RecordMany(Timeline* timeline, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const auto operation = static_cast<uint64_t>(i + 1);
    timeline->Begin(operation, 0, {OpKind::kAllreduce, "layer." + std::to_string(i % 100)});
    timeline->Phase(operation, "ALLREDUCE");
    timeline->End(operation);
    if (i % 5000 == 4999) usleep(120'000);
  }
}

// A limit on the size of files stands for the disk: writing fails from there on.
TEST(Timeline, GoesOnWithoutItselfWhenTheDiskIsFull) {
  TemporaryFile temporary;
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  Timeline timeline(0);
  const std::string errors = ErrorsOf([&] {
    const rlimit small = {TraceFile::kReserved * 5 / 2, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_TRUE(timeline.Start(temporary.path, false).ok());
    RecordMany(&timeline, 30'000);
    EXPECT_TRUE(timeline.Stop().ok());
    setrlimit(RLIMIT_FSIZE, &before);
  });
  EXPECT_EQ(Count(errors, "File too large"), 1);
  EXPECT_EQ(Count(errors, "the job goes on"), 1);
  const std::string text = temporary.Read();
  EXPECT_TRUE(Whole(text));
  EXPECT_TRUE(Count(text, "\"ph\":\"B\"") > 1000);
}

TEST(Timeline, GoesOnWhenNothingAtAllCanBeWritten) {
  TemporaryFile temporary;
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  Timeline timeline(0);
  const std::string errors = ErrorsOf([&] {
    const rlimit less_than_a_page = {1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less_than_a_page);
    signal(SIGXFSZ, SIG_IGN);  // as in Python
    EXPECT_TRUE(timeline.Start(temporary.path, false).ok());
    timeline.Begin(1, 0, {OpKind::kAllreduce, "a"});
    EXPECT_TRUE(timeline.Stop().ok());
    setrlimit(RLIMIT_FSIZE, &before);
  });
  EXPECT_EQ(Count(errors, "File too large"), 1);
}

TEST(Timeline, IsWholeWhereverTheProcessIsKilled) {
  TemporaryFile temporary;
  std::mt19937 random(7);
  int with_events = 0;
  for (int round = 0; round < 30; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      Timeline timeline(0);
      const bool started = timeline.Start(temporary.path, true).ok();
      if (write(ready[1], &started, 1) != 1) _exit(1);
      for (;;) RecordMany(&timeline, 20'000);
    }
    char started = 0;
    ASSERT_EQ(read(ready[0], &started, 1), 1);
    usleep(random() % 600'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    const std::string text = temporary.Read();
    EXPECT_TRUE(Whole(text));
    with_events += Count(text, "\"ph\":\"B\"") > 0;
  }
  EXPECT_TRUE(with_events > 10);
}

}  // namespace
}  // namespace hvd
