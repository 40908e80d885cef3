#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/collective.h"
#include "base/status.h"
#include "base/waker.h"

namespace hvd {

// A thread of a library's that does one thing at a time, all of which may wait, and that can be
// left behind while it waits. In the module of the library.
class Worker {
 public:
  // `last` is the last thing that the thread does, also one that was left behind: `linger_us` after
  // its end, but at once where something had failed or was under way.
  Worker(const char* name, int64_t linger_us, std::function<void()> last);
  // Waits for a thread that does not linger.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The first one starts the thread. `job` may throw; it and what it holds go with its end.
  void Begin(const Waker& waker, std::function<void()> job);
  Step Look();
  Status status() const;
  void Abandon() noexcept;

  // For a job: whether it is left behind.
  std::function<bool()> abandoned() const;

 private:
  // The thread's, too, for as long as it lives.
  struct Shared {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::function<void()> job;  // empty: none is to be begun
    bool running = false;
    bool failed = false;
    std::string error;
    bool ends = false;
    bool abandoned = false;
    bool lost = false;  // abandoned with something under way
    const Waker* waker = nullptr;
  };

  static void Run(Shared* shared);
  static std::function<void()> Next(Shared* shared);
  static void Linger(Shared* shared, std::chrono::microseconds limit);
  static void Leave(const std::function<void()>& last);
  static void Finish(Shared* shared, const char* error);
  void End() noexcept;

  const std::shared_ptr<Shared> shared_;
  const char* const name_;
  const std::chrono::microseconds linger_;
  const std::function<void()> last_;
  std::thread thread_;
};

}  // namespace hvd
