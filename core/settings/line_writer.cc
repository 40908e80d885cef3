#include "settings/line_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace hvd {

namespace {

// So that a line mostly stands before what the program writes next, and is out when it ends.
constexpr std::chrono::milliseconds kPatience{100};
constexpr std::chrono::seconds kFlushLimit{1};

// 0, or the errno. May wait for as long as the descriptor takes nothing.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room{fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool TakesSome(int fd) {
  pollfd room{fd, POLLOUT, 0};
  return poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0;
}

}  // namespace

struct LineWriter::State {
  explicit State(Options given) : options(std::move(given)) {}
  ~State() {
    if (options.owns) close(options.fd);
  }

  void Run() noexcept;
  void TellLoss(std::unique_lock<std::mutex>* lock);
  void Write(const std::string& line);

  const Options options;
  std::mutex mutex;  // guards all that follows
  std::condition_variable added;
  std::condition_variable written;
  std::deque<std::string> lines;
  size_t bytes = 0;  // of them
  uint64_t put = 0;  // lines so far
  uint64_t done = 0;
  size_t lost = 0;  // not yet told
  bool runs = false;
  bool is_stuck = false;  // until the queue is empty again nobody waits for a line
  bool is_closed = false;
  bool failed = false;  // the thread's alone
};

void LineWriter::State::Write(const std::string& line) {
  if (failed) return;
  const int error = WriteAll(options.fd, line);
  failed = error != 0 && options.on_error != nullptr;
  if (failed) options.on_error(error);
}

void LineWriter::State::TellLoss(std::unique_lock<std::mutex>* lock) {
  const size_t count = std::exchange(lost, 0);
  lock->unlock();
  // Without memory for it, that some were lost is lost, too.
  if (options.loss != nullptr) HasMemoryFor([&] { Write(options.loss(count)); });
  lock->lock();
}

void LineWriter::State::Run() noexcept {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    added.wait(lock, [this] { return !lines.empty() || is_closed; });
    if (lines.empty()) return;
    const std::string line = std::move(lines.front());
    lines.pop_front();
    lock.unlock();
    Write(line);
    lock.lock();
    bytes -= line.size();
    ++done;
    if (lines.empty() && lost > 0) TellLoss(&lock);
    is_stuck &= !lines.empty();
    written.notify_all();
  }
}

LineWriter::LineWriter(Options options) : state_(std::make_shared<State>(std::move(options))) {}

namespace {

// Handlers of the program's signals never run on it.
void StartDetached(const std::function<void()>& work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(work).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void LineWriter::Put(std::string line) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!state_->runs) {
    try {
      StartDetached([state = state_] { state->Run(); });
    } catch (const std::system_error&) {  // no more threads are allowed
      if (TakesSome(state_->options.fd)) WriteAll(state_->options.fd, line);
      return;
    }
    state_->runs = true;
  }
  if (state_->bytes > 0 && state_->bytes + line.size() > state_->options.most_bytes) {
    ++state_->lost;
    return;
  }
  const size_t size = line.size();
  state_->lines.push_back(std::move(line));
  state_->bytes += size;
  const uint64_t number = ++state_->put;
  state_->added.notify_one();
  if (state_->is_stuck) return;
  const auto is_out = [&] { return state_->done >= number; };
  state_->is_stuck = !state_->written.wait_for(lock, kPatience, is_out);
}

void LineWriter::Flush() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->written.wait_for(lock, kFlushLimit, [this] { return state_->done == state_->put; });
}

void LineWriter::Close() {
  Flush();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_closed = true;
  state_->added.notify_one();
}

}  // namespace hvd
