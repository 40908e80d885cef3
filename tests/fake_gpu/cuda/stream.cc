#include "cuda/stream.h"

#include <chrono>
#include <thread>
#include <utility>

#include "cuda/settings.h"

namespace fake_gpu {

void Moment::Reach() {
  std::lock_guard<std::mutex> lock(mutex_);
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
  queue_.push_back(std::move(work));
  ++enqueued_;
  changed_.notify_all();
  if (std::exchange(started_, true)) return;
  std::thread([self = shared_from_this()] { self->Run(); }).detach();
}

bool Stream::IsIdle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == enqueued_;
}

void Stream::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&, until = enqueued_] { return done_ >= until; });
}

void Stream::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
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
  for (std::function<void()> work; Next(&work);) {
    Delay(&random);
    work();
    work = nullptr;  // what it holds goes before it counts as done
    std::lock_guard<std::mutex> lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

bool Stream::Next(std::function<void()>* work) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !queue_.empty() || closed_; });
  if (queue_.empty()) return false;
  *work = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::Delay(std::mt19937* random) {
  const int limit = TheSettings().delay_us;
  if (limit <= 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds((*random)() % (limit + 1)));
}

}  // namespace fake_gpu
