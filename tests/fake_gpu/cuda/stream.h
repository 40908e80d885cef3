#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "cuda/order.h"

namespace fake_gpu {

// A point in the work of a stream: once reached, it stays so.
class Moment {
 public:
  void Reach(const Order& order, int64_t time_us);
  bool IsReached();
  void Wait();

  // Once it is reached: what comes before it, and the simulated time.
  const Order& order() const { return order_; }
  int64_t time_us() const { return time_us_; }

 private:
  std::mutex mutex_;  // guards what follows, until it is reached
  std::condition_variable changed_;
  bool reached_ = false;
  Order order_;
  int64_t time_us_ = 0;
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
  int key() const { return number_ == 0 ? -1 - device_ : number_; }

  // For work of the stream while it runs: what comes before it, and its simulated time. Only what
  // is told how long it takes takes any of that.
  const Order& order() const { return order_; }
  int64_t time_us() const { return time_us_; }
  void WaitUntil(int64_t time_us) { time_us_ = time_us > time_us_ ? time_us : time_us_; }
  void Follow(const Moment& moment) {
    order_.Add(moment.order());
    WaitUntil(moment.time_us());
  }

  void Enqueue(std::function<void()> work);
  bool IsIdle();
  // Until all that is queued now is done; the simulated time then.
  int64_t Wait();
  void Close();

  // While a library is about to enqueue something that the program has already called for, work of
  // the program would overtake it.
  void Hold(int change);
  bool IsHeld();

  void Capture(bool captures) { captures_ = captures; }
  bool IsCapturing() const { return captures_; }

 private:
  void Run();
  struct Piece {
    std::function<void()> work;
    Order before;  // what the thread that has queued it knew
  };
  bool Next(Piece* piece);
  void Delay(std::mt19937* random);

  const int number_;
  const int device_;
  std::atomic<bool> captures_{false};
  Order order_;  // of the thread of the stream, as is the next
  int64_t time_us_ = 0;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  Order done_order_;  // the same after what is done
  int64_t done_time_us_ = 0;
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

// Whether the stream of a key is destroyed and has done all: it touches nothing any more.
bool IsGone(int key);

// Until all streams of a device are idle.
void WaitForDevice(int device);

}  // namespace fake_gpu
