#include "runtime/liveness/program_threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include "base/status.h"
#include "transport/descriptor.h"

namespace hvd {

namespace {

// Part of a processor that threads of others, which only look after something, may use together.
constexpr int64_t kLittle = 10;

struct OfThisThread {
  uint64_t engine = 0;
  std::shared_ptr<ProgramThread> thread;
};
thread_local OfThisThread of_this_thread;

std::atomic<uint64_t> engines{0};

int64_t ProcessorMicros() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1000000 + used.tv_nsec / 1000;
}

// A line that the kernel tells of a thread of this process; empty where it tells none.
std::string LineOf(const std::string& thread, const char* name) {
  const std::string path = "/proc/self/task/" + thread + "/" + name;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char line[256];
  const ssize_t length = file.valid() ? read(file.get(), line, sizeof line) : 0;
  return {line, static_cast<size_t>(std::max<ssize_t>(0, length))};
}

// What cannot be read tells nothing: then the thread may go on.
bool Sleeps(pid_t thread) {
  return AwaitsAnotherThread(LineOf(std::to_string(thread), "syscall").c_str());
}

// For how long each thread has run, and waited for a processor. None where the kernel does not
// tell.
std::map<pid_t, int64_t> WantedByThread() {
  std::map<pid_t, int64_t> wanted;
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(opendir("/proc/self/task"), closedir);
  while (const dirent* entry = threads == nullptr ? nullptr : readdir(threads.get())) {
    int64_t ran = 0;
    int64_t waited = 0;
    const std::string line = LineOf(entry->d_name, "schedstat");
    if (std::sscanf(line.c_str(), "%" SCNd64 " %" SCNd64, &ran, &waited) == 2)
      wanted[static_cast<pid_t>(std::atoi(entry->d_name))] = (ran + waited) / 1000;
  }
  return wanted;
}

}  // namespace

// Of a futex that processes share another one may wake it, and with a limit it wakes by itself.
bool AwaitsAnotherThread(const char* system_call) {
  long number = 0;
  uint64_t address = 0;
  uint64_t operation = 0;
  uint64_t expected = 0;
  uint64_t limit = 0;
  if (std::sscanf(system_call, "%ld 0x%" SCNx64 " 0x%" SCNx64 " 0x%" SCNx64 " 0x%" SCNx64, &number,
                  &address, &operation, &expected, &limit) != 5)
    return false;
  const uint64_t command = operation & static_cast<uint64_t>(FUTEX_CMD_MASK);
  const bool is_wait = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
  return number == SYS_futex && is_wait && (operation & FUTEX_PRIVATE_FLAG) != 0 && limit == 0;
}

ProgramThreads::ProgramThreads() : number_(++engines) {}

const std::shared_ptr<ProgramThread>& ProgramThreads::Caller() noexcept {
  OfThisThread& mine = of_this_thread;
  if (mine.engine == number_) return mine.thread;
  const auto ended = [](const auto& thread) { return thread.expired(); };
  mine = {number_, nullptr};
  const bool known = HasMemoryFor([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.erase(std::remove_if(threads_.begin(), threads_.end(), ended), threads_.end());
    const auto thread = std::make_shared<ProgramThread>();
    thread->id = static_cast<pid_t>(syscall(SYS_gettid));
    threads_.push_back(thread);
    mine.thread = thread;
  });
  if (!known) mine.engine = 0;  // the next call tries again
  return mine.thread;
}

bool ProgramThreads::AllStandStill(int64_t now_us) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t since_us = std::exchange(looked_us_, now_us);
  bool queued = true;  // without memory nothing is known
  (void)HasMemoryFor([&] { queued = HasQueued(since_us, now_us); });
  if (HasComputed(since_us, now_us) || queued) return false;
  return std::all_of(threads_.begin(), threads_.end(), [](const auto& known) {
    const std::shared_ptr<ProgramThread> thread = known.lock();
    return thread == nullptr || thread->waits.load() > 0 || Sleeps(thread->id);
  });
}

bool ProgramThreads::HasComputed(int64_t since_us, int64_t now_us) {
  const int64_t used = ProcessorMicros();
  return (used - std::exchange(used_us_, used)) * kLittle > now_us - since_us;
}

// Whether a thread has used a processor, or waited in its queue, for most of the time. One that is
// new counts from its beginning.
bool ProgramThreads::HasQueued(int64_t since_us, int64_t now_us) {
  const std::map<pid_t, int64_t> before = std::exchange(wanted_us_, WantedByThread());
  if (before.empty()) return !wanted_us_.empty();
  return std::any_of(wanted_us_.begin(), wanted_us_.end(), [&](const auto& thread) {
    const auto known = before.find(thread.first);
    const int64_t wanted = thread.second - (known == before.end() ? 0 : known->second);
    return wanted * 2 > now_us - since_us;
  });
}

}  // namespace hvd
