#include "settings/failpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "check.h"

namespace hvd {
namespace {

struct Victim {
  int status = 0;      // of waitpid
  std::string output;  // stderr
};

// A child that arms `spec` as `rank` and hits "chunk" 5 times, with other points between; exits
// with 7 if it lives.
Victim Run(const std::string& spec, int rank) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    if (!failpoint::Arm(spec, rank).ok()) _exit(8);
    for (int i = 0; i < 5; ++i) {
      failpoint::Hit("other");
      failpoint::Hit("chunk");
      [[maybe_unused]] ssize_t ignored = write(STDERR_FILENO, ".", 1);
    }
    _exit(7);
  }
  close(ends[1]);
  Victim victim;
  waitpid(child, &victim.status, WUNTRACED);
  if (WIFSTOPPED(victim.status)) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  char text[256];
  const ssize_t bytes = read(ends[0], text, sizeof text);
  if (bytes > 0) victim.output.assign(text, static_cast<size_t>(bytes));
  close(ends[0]);
  return victim;
}

bool Lived(const Victim& victim) {
  return WIFEXITED(victim.status) && WEXITSTATUS(victim.status) == 7;
}

TEST(failpoint, KillsAtTheCountedHit) {
  const Victim victim = Run("chunk@3:rank1:kill", 1);
  EXPECT_TRUE(WIFSIGNALED(victim.status) && WTERMSIG(victim.status) == SIGKILL);
  EXPECT_EQ(victim.output, "..failpoint chunk@3 on rank 1: kill\n");
}

TEST(failpoint, StopsAtTheCountedHit) {
  const Victim victim = Run("chunk@5:rank0:stop", 0);
  EXPECT_TRUE(WIFSTOPPED(victim.status));
  EXPECT_EQ(victim.output, "....failpoint chunk@5 on rank 0: stop\n");
}

TEST(failpoint, LeavesOthersAlone) {
  EXPECT_TRUE(Lived(Run("", 1)));
  EXPECT_TRUE(Lived(Run("chunk@3:rank1:kill", 0)));
  EXPECT_TRUE(Lived(Run("chunk@6:rank1:kill", 1)));
  EXPECT_TRUE(Lived(Run("chunks@3:rank1:kill", 1)));
}

TEST(failpoint, ABadSpecIsShownInShort) {
  const Status status = failpoint::Arm("\x1b[2J" + std::string(5000, 'x'), 1);
  EXPECT_TRUE(status.message().size() < 400);
  EXPECT_TRUE(status.message().find('\x1b') == std::string::npos);
}

TEST(failpoint, BadSpecs) {
  for (const char* spec :
       {"chunk", "chunk@0:rank1:kill", "chunk@3:rank1:explode", "chunk@3:1:kill", "@3:rank1:kill",
        "chunk@3:rank1:kill ", "chunk@3:rank-1:kill", "chunk@x:rank1:kill"}) {
    const Status status = failpoint::Arm(spec, 1);
    EXPECT_TRUE(status.code() == Code::kInvalidArgument);
    EXPECT_TRUE(status.message().find("HOROVOD_FAILPOINT") != std::string::npos);
  }
}

}  // namespace
}  // namespace hvd
