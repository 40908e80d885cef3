#include "backend/library/worker.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <system_error>
#include <utility>

#include "base/float_mode.h"

namespace hvd {

namespace {

// The program's signals are for its own threads: a thread inherits the mask of its maker.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Worker::Worker(const char* name, int64_t linger_us, std::function<void()> last)
    : shared_(std::make_shared<Shared>()),
      name_(name),
      linger_(linger_us),
      last_(std::move(last)) {}

Worker::~Worker() {
  End();
  if (!thread_.joinable()) return;
  if (linger_.count() > 0) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::End() noexcept {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->ends = true;
  shared_->changed.notify_all();
}

void Worker::Begin(const Waker& waker, std::function<void()> job) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->waker = &waker;
    shared_->job = std::move(job);
    shared_->running = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable() || shared_->abandoned) return;
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([shared = shared_, name = name_, linger = linger_, last = last_] {
      pthread_setname_np(pthread_self(), name);
      Run(shared.get());
      Linger(shared.get(), linger);
      Leave(last);
    });
  } catch (const std::system_error& error) {
    Finish(shared_.get(), error.what());
  }
}

void Worker::Run(Shared* shared) {
  PrepareToThrow();
  const FloatMode mode;
  while (std::function<void()> job = Next(shared)) {
    std::string error;
    bool failed = false;
    try {
      job();
    } catch (const std::exception& caught) {
      failed = true;
      error = caught.what();
    }
    job = nullptr;
    Finish(shared, failed ? error.c_str() : nullptr);
  }
}

// Empty at the end.
std::function<void()> Worker::Next(Shared* shared) {
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->changed.wait(lock, [&] { return shared->ends || shared->job; });
  return shared->ends ? nullptr : std::exchange(shared->job, nullptr);
}

void Worker::Linger(Shared* shared, std::chrono::microseconds limit) {
  std::unique_lock<std::mutex> lock(shared->mutex);
  if (!shared->failed) shared->changed.wait_for(lock, limit, [&] { return shared->lost; });
}

void Worker::Leave(const std::function<void()>& last) {
  try {
    last();
  } catch (const std::exception&) {
    // Nobody is left to hear of it.
  }
}

void Worker::Finish(Shared* shared, const char* error) {
  const std::lock_guard<std::mutex> lock(shared->mutex);
  shared->failed = error != nullptr;
  if (shared->failed) shared->error = error;
  shared->running = false;
  if (!shared->abandoned) shared->waker->Ring();
}

Step Worker::Look() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->running) return Step::kBlocked;
  return shared_->failed ? Step::kFailed : Step::kDone;
}

Status Worker::status() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return Status::Aborted(shared_->error);
}

std::function<bool()> Worker::abandoned() const {
  return [shared = shared_] {
    const std::lock_guard<std::mutex> lock(shared->mutex);
    return shared->abandoned;
  };
}

void Worker::Abandon() noexcept {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->abandoned = true;
    shared_->lost = shared_->running;
    shared_->ends = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.detach();
}

}  // namespace hvd
