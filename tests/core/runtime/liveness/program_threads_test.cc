#include "runtime/liveness/program_threads.h"

#include <sys/syscall.h>

#include <string>

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

}  // namespace
}  // namespace hvd::test
