#include "check.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace hvd::check {

namespace {
std::atomic<int> failures{0};
std::mutex output;
}  // namespace

std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

double Within(double seconds) {
  double runnable = 0;
  if (getloadavg(&runnable, 1) != 1) return seconds;
  const double sharing = runnable / std::max(1u, std::thread::hardware_concurrency());
  return seconds * std::clamp(sharing, 1.0, 3.0);
}

void Fail(const char* file, int line, const std::string& message) {
  failures.fetch_add(1);
  const std::lock_guard<std::mutex> lock(output);
  std::fprintf(stderr, "%s:%d: expected %s\n", file, line, message.c_str());
}

}  // namespace hvd::check

// ThreadSanitizer asks for it. It does not see that glibc frees a thread's variables of a library
// that was loaded later only after the thread has destroyed them.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:_dl_deallocate_tls\n"; }

// Usage: test_x [substring of the names to run]
int main(int argc, char** argv) {
  int failed = 0;
  int run = 0;
  for (const auto& test : hvd::check::Cases()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    const int before = hvd::check::failures;
    test.body();
    const bool ok = hvd::check::failures == before;
    std::printf("%s %s\n", ok ? "ok    " : "FAILED", test.name);
    std::fflush(stdout);
    failed += ok ? 0 : 1;
    ++run;
  }
  std::printf("%d passed, %d failed\n", run - failed, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}
