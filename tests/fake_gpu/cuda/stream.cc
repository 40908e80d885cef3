#include "cuda/stream.h"

#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "cuda/settings.h"

namespace fake_gpu {
namespace {

struct Gone {
  std::mutex mutex;  // guards keys
  std::set<int> keys;
};

Gone& TheGone() {
  static auto* gone = new Gone;
  return *gone;
}

void Add(int key) {
  std::lock_guard<std::mutex> lock(TheGone().mutex);
  TheGone().keys.insert(key);
}

}  // namespace

bool IsGone(int key) {
  std::lock_guard<std::mutex> lock(TheGone().mutex);
  return TheGone().keys.count(key) > 0;
}

void Moment::Reach(const Order& order, int64_t time_us) {
  std::lock_guard<std::mutex> lock(mutex_);
  order_ = order;
  time_us_ = time_us;
  reached_ = true;
  changed_.notify_all();
}

bool Moment::IsReached() {
  std::lock_guard<std::mutex> lock(mutex_);
  return reached_;
}

void Moment::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
}

void Stream::Enqueue(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back({std::move(work), OrderOfThread()});
  ++enqueued_;
  changed_.notify_all();
  if (std::exchange(started_, true)) return;
  std::thread([self = shared_from_this()] { self->Run(); }).detach();
}

bool Stream::IsIdle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == enqueued_;
}

int64_t Stream::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&, until = enqueued_] { return done_ >= until; });
  OrderOfThread().Add(done_order_);
  return done_time_us_;
}

void Stream::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (done_ == enqueued_) Add(key());
  changed_.notify_all();
}

void Stream::Hold(int change) {
  std::lock_guard<std::mutex> lock(mutex_);
  holds_ += change;
}

bool Stream::IsHeld() {
  std::lock_guard<std::mutex> lock(mutex_);
  return holds_ > 0;
}

void Stream::Run() {
  std::mt19937 random(TheSettings().seed * 1000 + static_cast<unsigned>(number_ * 16 + device_));
  for (Piece piece; Next(&piece);) {
    Delay(&random);
    order_.Add(piece.before);
    order_.Next(key());
    piece.work();
    piece.work = nullptr;  // what it holds goes before it counts as done
    std::lock_guard<std::mutex> lock(mutex_);
    done_order_ = order_;
    done_time_us_ = time_us_;
    ++done_;
    changed_.notify_all();
  }
}

bool Stream::Next(Piece* piece) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !queue_.empty() || closed_; });
  if (queue_.empty()) Add(key());
  if (queue_.empty()) return false;
  *piece = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::Delay(std::mt19937* random) {
  const int limit = TheSettings().delay_us;
  if (limit <= 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds((*random)() % (limit + 1)));
}

}  // namespace fake_gpu
