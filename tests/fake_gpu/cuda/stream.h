#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

namespace fake_gpu {

// A point in the work of a stream: once reached, it stays so.
class Moment {
 public:
  void Reach();
  bool IsReached();
  void Wait();

 private:
  std::mutex mutex_;  // guards reached_
  std::condition_variable changed_;
  bool reached_ = false;
};

// A queue of work, done in order by a thread of its own. That thread lives until the program has
// destroyed the stream and the queue is empty.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // Number 0 is the default stream of a device.
  Stream(int number, int device) : number_(number), device_(device) {}

  int number() const { return number_; }
  int device() const { return device_; }
  std::string Name() const { return number_ == 0 ? "default" : std::to_string(number_); }

  void Enqueue(std::function<void()> work);
  bool IsIdle();
  // Until all that is queued now is done.
  void Wait();
  void Close();

  // While a library is about to enqueue something that the program has already called for, work of
  // the program would overtake it.
  void Hold(int change);
  bool IsHeld();

  void Capture(bool captures) { captures_ = captures; }
  bool IsCapturing() const { return captures_; }

 private:
  void Run();
  bool Next(std::function<void()>* work);
  void Delay(std::mt19937* random);

  const int number_;
  const int device_;
  std::atomic<bool> captures_{false};
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  int holds_ = 0;
  bool started_ = false;
  bool closed_ = false;
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  Event(int number, int device) : number(number), device(device) {}
  const int number;
  const int device;
  std::mutex mutex;              // guards last
  std::shared_ptr<Moment> last;  // null: never recorded, which counts as reached
};

// The stream of a handle; null: the default stream of `device`. Null where it was destroyed.
StreamPtr FindStream(void* handle, int device);

// The stream on which a call puts work, of the current context; null with the result of the call.
StreamPtr StreamForWork(const char* call, void* handle, int* result);

// Until all streams of a device are idle.
void WaitForDevice(int device);

}  // namespace fake_gpu
