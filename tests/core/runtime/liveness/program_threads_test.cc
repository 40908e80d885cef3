#include "runtime/liveness/program_threads.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "check.h"

namespace hvd::test {
namespace {

std::string Futex(const std::string& operation, const std::string& limit) {
  return std::to_string(SYS_futex) + " 0x7f00 " + operation + " 0x2 " + limit + " 0x0 0x0 0x1 0x2";
}

TEST(ProgramThreads, KnowsWhatOnlyAnotherThreadCanEnd) {
  EXPECT_TRUE(AwaitsAnotherThread(Futex("0x80", "0x0").c_str()));
  EXPECT_TRUE(AwaitsAnotherThread(Futex("0x189", "0x0").c_str()));      // with a clock
  EXPECT_FALSE(AwaitsAnotherThread(Futex("0x189", "0x7fff").c_str()));  // has a limit
  EXPECT_FALSE(AwaitsAnotherThread(Futex("0x109", "0x0").c_str()));  // other processes have it, too
  EXPECT_FALSE(AwaitsAnotherThread(Futex("0x81", "0x0").c_str()));   // wakes somebody
  EXPECT_FALSE(AwaitsAnotherThread("running"));
  EXPECT_FALSE(AwaitsAnotherThread("0 0x3 0x80 0x2 0x0 0x0 0x0 0x1 0x2"));  // reads
  EXPECT_FALSE(AwaitsAnotherThread(""));
}

// Processes that compute on the processor of the caller, and leave it a twentieth.
class BusyProcessor {
 public:
  BusyProcessor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (pid_t& process : processes_) {
      process = fork();
      while (process == 0) continue;
    }
  }
  ~BusyProcessor() {
    for (const pid_t process : processes_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_;
  pid_t processes_[20];
};

// In each of some looks, so long after each other.
int LooksThatFindItStill(ProgramThreads* threads, int looks) {
  int still = 0;
  (void)threads->AllStandStill(NowMicros());
  for (int look = 0; look < looks; ++look) {
    usleep(700'000);
    still += threads->AllStandStill(NowMicros()) ? 1 : 0;
  }
  return still;
}

TEST(ProgramThreads, AThreadThatHardlyGetsAProcessorComputes) {
  ProgramThreads threads;
  EXPECT_EQ(LooksThatFindItStill(&threads, 2), 2);
  std::atomic<bool> over{false};
  const BusyProcessor busy;
  std::thread computing([&] {
    while (!over) continue;
  });
  EXPECT_EQ(LooksThatFindItStill(&threads, 4), 0);
  over = true;
  computing.join();
}

TEST(ProgramThreads, ThreadsThatComeAndGoDoNotCompute) {
  ProgramThreads threads;
  (void)threads.AllStandStill(NowMicros());
  int still = 0;
  for (int look = 0; look < 3; ++look) {
    usleep(700'000);
    std::thread idle([] { usleep(100'000); });
    still += threads.AllStandStill(NowMicros()) ? 1 : 0;
    idle.join();
  }
  EXPECT_EQ(still, 3);
}

}  // namespace
}  // namespace hvd::test
