#pragma once

// What the fakes' own tests hold: a current context, streams, events and memory.

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "check.h"
#include "cuda/abi.h"

namespace fake_gpu::test {

// The environment of one test, with one variable or none; without it again afterwards.
class Environment {
 public:
  explicit Environment(const char* name = nullptr, const char* value = "") : name_(name) {
    if (name_ != nullptr) setenv(name_, value, 1);
    fake_gpu_forget();
  }
  ~Environment() {
    if (name_ != nullptr) unsetenv(name_);
    fake_gpu_forget();
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* const name_;
};

inline bool HasCalled(const std::string& text) {
  return std::string(fake_gpu_calls()).find(text) != std::string::npos;
}

inline std::string Leaks() {
  char text[4096] = "";
  fake_gpu_leaks(text, sizeof text);
  return text;
}

// Makes a device's context current on this thread.
class Device {
 public:
  explicit Device(int number = 0) : number_(number) {
    cuInit(0);
    void* context = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, number), 0);
    EXPECT_EQ(cuCtxPushCurrent_v2(context), 0);
  }
  ~Device() {
    EXPECT_EQ(cuCtxPopCurrent_v2(nullptr), 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(number_), 0);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  const int number_;
};

class TestStream {
 public:
  TestStream() { EXPECT_EQ(cuStreamCreateWithPriority(&handle_, 1, 0), 0); }
  ~TestStream() { EXPECT_EQ(cuStreamDestroy_v2(handle_), 0); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator void*() const { return handle_; }
  void Wait() const { EXPECT_EQ(cuStreamSynchronize(handle_), 0); }

 private:
  void* handle_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() { EXPECT_EQ(cuEventCreate(&handle_, 2), 0); }
  ~TestEvent() { EXPECT_EQ(cuEventDestroy_v2(handle_), 0); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator void*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// Device memory of `count` elements.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_EQ(cuMemAlloc_v2(&address_, std::max<size_t>(1, count) * sizeof(T)), 0);
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    TestStream stream;
    cuMemcpyHtoDAsync_v2(address_, values.data(), values.size() * sizeof(T), stream);
    stream.Wait();
  }
  // Not cuMemFree, which waits for the whole device: also for the streams of other ranks on it.
  ~Buffer() { EXPECT_EQ(cuMemFreeAsync(address_, nullptr), 0); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  CudaAddress address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  // After what `stream` has to do.
  std::vector<T> Read(void* stream) const {
    std::vector<T> values(count_);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(values.data(), address_, count_ * sizeof(T), stream), 0);
    EXPECT_EQ(cuStreamSynchronize(stream), 0);
    return values;
  }

 private:
  const size_t count_;
  CudaAddress address_ = 0;
};

// A kernel that runs until the test opens the gate. Goes after the stream has passed it.
class Gate {
 public:
  explicit Gate(void* stream) {
    EXPECT_EQ(cuLaunchHostFunc(
                  stream, [](void* gate) { static_cast<Gate*>(gate)->Pass(); }, this),
              0);
  }
  ~Gate() {
    std::unique_lock<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return passed_; });
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    passed_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool open_ = false;
  bool passed_ = false;
};

}  // namespace fake_gpu::test
