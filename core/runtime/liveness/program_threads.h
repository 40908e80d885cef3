#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hvd {

// A thread that has called an engine. `waits`: for how many operations of it.
struct ProgramThread {
  pid_t id;
  std::atomic<int> waits{0};
};

// The threads of the program that use one engine: whether any of them can still submit something.
// Each counts from its first call until it ends, or until it uses another engine.
//
// A thread that does not wait in the library is taken to be able to go on, unless the kernel shows
// that it sleeps until another thread of this process wakes it, as in a join or at a lock. What
// this cannot see is a thread that has never called the library and will: so neither may the
// process have computed meanwhile, nor a thread of it have wanted to, on a busy machine.
class ProgramThreads {
 public:
  ProgramThreads();

  // That of the caller; null where there is no memory for it. Alive as long as the thread is.
  const std::shared_ptr<ProgramThread>& Caller() noexcept;

  // For one thread. Whether none can go on: at this moment, and by the processor time that the
  // process has used, or its threads have waited for, since the last call. The first call does
  // not know.
  bool AllStandStill(int64_t now_us);

 private:
  bool HasComputed(int64_t since_us, int64_t now_us);
  bool HasQueued(int64_t since_us, int64_t now_us);

  const uint64_t number_;  // of the engine, in this process
  std::mutex mutex_;       // guards what follows
  std::vector<std::weak_ptr<ProgramThread>> threads_;
  int64_t looked_us_ = 0;
  int64_t used_us_ = 0;                 // of the processor, until then
  std::map<pid_t, int64_t> wanted_us_;  // by each thread of the process, used or waited for
};

// Whether a thread of this process sleeps until another one of it wakes it, from the line of the
// kernel that tells the system call that the thread is in (/proc/self/task/<id>/syscall).
bool AwaitsAnotherThread(const char* system_call);

}  // namespace hvd
