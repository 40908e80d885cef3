#include "settings/line_writer.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "check.h"
#include "settings/log.h"

namespace hvd {
namespace {

constexpr int kLines = 2000;
constexpr size_t kLineBytes = 400;  // all together more than a pipe and the queue hold

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() { close(ends[0]), close(ends[1]); }

  // What has come until `end`, or until nothing comes for ten seconds.
  std::string ReadUntil(const std::string& end) const {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::string text;
    for (int idle = 0; idle < 10000 && text.find(end) == std::string::npos; ++idle) {
      char bytes[1 << 16];
      const ssize_t got = read(ends[0], bytes, sizeof bytes);
      if (got > 0) {
        text.append(bytes, static_cast<size_t>(got));
        idle = 0;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return text;
  }

  int ends[2];
};

std::string LineNumber(int number) {
  std::string line = std::to_string(number);
  line.resize(kLineBytes - 1, '.');
  return line + "\n";
}

TEST(LineWriter, HoldsNobodyUpAndSaysLaterWhatWasLost) {
  Pipe pipe;
  LineWriter::Options options;
  options.fd = pipe.ends[1];
  options.loss = [](size_t lines) { return "lost " + std::to_string(lines) + "\n"; };
  LineWriter writer(options);
  const int64_t begin = NowMicros();
  for (int i = 0; i < kLines; ++i) writer.Put(LineNumber(i));
  EXPECT_TRUE(NowMicros() - begin < 2000000);
  std::string text = pipe.ReadUntil("lost ");
  if (text.back() != '\n') text += pipe.ReadUntil("\n");
  const size_t end = text.find("lost ");
  ASSERT_TRUE(end != std::string::npos);
  // Those that were not lost are the first ones, in order.
  const size_t kept = end / kLineBytes;
  EXPECT_EQ(end % kLineBytes, 0u);
  EXPECT_TRUE(kept > 500 && kept < kLines);
  for (size_t i = 0; i < kept; ++i) {
    EXPECT_EQ(text.substr(i * kLineBytes, kLineBytes), LineNumber(static_cast<int>(i)));
  }
  const std::string told = text.substr(end);
  EXPECT_EQ(told.substr(0, told.find('\n')), "lost " + std::to_string(kLines - kept));
  writer.Put("later\n");
  EXPECT_TRUE(pipe.ReadUntil("later\n").find("later\n") != std::string::npos);
}

TEST(LineWriter, ALineIsOutWhenPutReturns) {
  Pipe pipe;
  LineWriter::Options options;
  options.fd = pipe.ends[1];
  LineWriter writer(options);
  for (int i = 0; i < 100; ++i) writer.Put(std::to_string(i) + "\n");
  writer.Flush();
  EXPECT_EQ(pipe.ReadUntil("99\n").substr(0, 6), "0\n1\n2\n");
}

TEST(LineWriter, TellsOnceWhyNothingIsTaken) {
  std::atomic<int> told{0};
  std::atomic<int> why{0};
  LineWriter::Options options;
  options.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  options.owns = true;
  options.on_error = [&](int error) { ++told, why = error; };
  {
    LineWriter writer(options);
    writer.Put("one\n");
    writer.Put("two\n");
    writer.Flush();
  }
  EXPECT_EQ(told.load(), 1);
  EXPECT_EQ(why.load(), ENOSPC);
}

// As of a log on a disk that was full for a while.
TEST(LineWriter, GoesOnBehindAnErrorThatNobodyIsTold) {
  Pipe pipe;
  LineWriter::Options options;
  options.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  options.owns = true;
  LineWriter writer(options);
  writer.Put("one\n");
  writer.Flush();
  EXPECT_EQ(dup2(pipe.ends[1], options.fd), options.fd);
  writer.Put("two\n");
  EXPECT_EQ(pipe.ReadUntil("two\n"), "two\n");
}

// As of a terminal that is paused: the thread that logs goes on, and the end of the process waits
// only for a moment.
TEST(LineWriter, AStandardErrorThatNobodyReadsHoldsUpNoThread) {
  Pipe pipe;
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe.ends[1], STDERR_FILENO);
    for (int i = 0; i < kLines; ++i) Log(LogLevel::kError, LineNumber(i));
    exit(0);
  }
  const int64_t begin = NowMicros();
  int status = 1;
  pid_t ended = 0;
  while (ended == 0 && NowMicros() - begin < 20000000) {
    ended = waitpid(child, &status, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended == 0) kill(child, SIGKILL);
  EXPECT_EQ(ended, child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hvd
