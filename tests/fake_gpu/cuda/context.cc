// Devices, their primary contexts, and each thread's stack of current ones.

#include "cuda/context.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/abi.h"
#include "cuda/record.h"
#include "cuda/settings.h"

namespace fake_gpu {
namespace {

constexpr uintptr_t kContexts = 0x10000000;
constexpr uintptr_t kStep = 64;
constexpr int kDriverVersion = 12080;

struct Device {
  int retained = 0;
  int broken = kCudaOk;
};

struct Devices {
  std::mutex mutex;  // guards all below
  std::map<int, Device> by_number;
};

Devices& TheDevices() {
  static auto* devices = new Devices;
  return *devices;
}

std::atomic<bool> initialized{false};
thread_local std::vector<int> stack;  // devices, by whose contexts this thread has pushed

void* HandleOf(int device) { return reinterpret_cast<void*>(kContexts + (device + 1) * kStep); }

bool IsDevice(int device) { return device >= 0 && device < TheSettings().devices; }

bool IsRetained(int device) {
  std::lock_guard<std::mutex> lock(TheDevices().mutex);
  return TheDevices().by_number[device].retained > 0;
}

}  // namespace

int DeviceOf(void* context) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(context) - kContexts;
  const bool valid = offset % kStep == 0 && offset / kStep >= 1 &&
                     offset / kStep <= static_cast<uintptr_t>(TheSettings().devices);
  return valid ? static_cast<int>(offset / kStep) - 1 : -1;
}

int CurrentDevice() { return stack.empty() ? -1 : stack.back(); }

int NeedDevice(int* device) {
  *device = CurrentDevice();
  if (*device < 0) return kCudaInvalidContext;
  std::lock_guard<std::mutex> lock(TheDevices().mutex);
  return TheDevices().by_number[*device].broken;
}

void Break(int device, int code) {
  std::lock_guard<std::mutex> lock(TheDevices().mutex);
  TheDevices().by_number[device].broken = code;
}

void MendAll() {
  std::lock_guard<std::mutex> lock(TheDevices().mutex);
  for (auto& device : TheDevices().by_number) device.second.broken = kCudaOk;
}

}  // namespace fake_gpu

using namespace fake_gpu;

int cuInit(unsigned) {
  Record("cuInit");
  std::this_thread::sleep_for(std::chrono::milliseconds(TheSettings().init_ms));
  if (TheSettings().init_fails || TheSettings().devices == 0) return kCudaNoDevice;
  initialized = true;
  return kCudaOk;
}

int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kCudaOk;
}

int cuGetErrorString(int result, const char** text) {
  static const std::map<int, const char*> texts = {
      {kCudaOk, "no error"},
      {kCudaInvalidValue, "invalid argument"},
      {kCudaOutOfMemory, "out of memory"},
      {kCudaNoDevice, "no CUDA-capable device is detected"},
      {kCudaInvalidDevice, "invalid device ordinal"},
      {kCudaInvalidContext, "invalid device context"},
      {kCudaInvalidHandle, "invalid resource handle"},
      {kCudaNotReady, "device not ready"},
      {kCudaIllegalAddress, "an illegal memory access was encountered"},
  };
  const auto found = texts.find(result);
  *text = found == texts.end() ? nullptr : found->second;
  return found == texts.end() ? kCudaInvalidValue : kCudaOk;
}

int cuDeviceGetCount(int* count) {
  if (!initialized) return Fail(3, "cuDeviceGetCount before cuInit");
  *count = TheSettings().devices;
  return kCudaOk;
}

int cuDeviceGet(int* device, int ordinal) {
  if (!initialized) return Fail(3, "cuDeviceGet before cuInit");
  if (!IsDevice(ordinal)) return kCudaInvalidDevice;
  *device = ordinal;
  return kCudaOk;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!IsDevice(device)) return kCudaInvalidDevice;
  if (attribute != kMajorCapability) return kCudaInvalidValue;
  *value = TheSettings().capability;
  return kCudaOk;
}

int cuDeviceGetName(char* name, int bytes, int device) {
  if (!IsDevice(device)) return kCudaInvalidDevice;
  std::snprintf(name, bytes, "Fake GPU %d", device);
  return kCudaOk;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  Record("cuDevicePrimaryCtxRetain", "device", device);
  if (!IsDevice(device)) return kCudaInvalidDevice;
  {
    std::lock_guard<std::mutex> lock(TheDevices().mutex);
    ++TheDevices().by_number[device].retained;
  }
  Own("context of device", std::to_string(device));
  *context = HandleOf(device);
  return kCudaOk;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  Record("cuDevicePrimaryCtxRelease", "device", device);
  if (!IsDevice(device)) return kCudaInvalidDevice;
  if (!IsRetained(device)) {
    return Fail(kCudaInvalidContext, "a context is released more often than retained");
  }
  Disown("context of device", std::to_string(device));
  std::lock_guard<std::mutex> lock(TheDevices().mutex);
  --TheDevices().by_number[device].retained;
  return kCudaOk;
}

int cuCtxPushCurrent_v2(void* context) {
  const int device = DeviceOf(context);
  if (device < 0 || !IsRetained(device)) {
    return Fail(kCudaInvalidContext, "a context that is not retained is made current");
  }
  stack.push_back(device);
  return kCudaOk;
}

int cuCtxPopCurrent_v2(void** context) {
  if (stack.empty()) return kCudaInvalidContext;
  if (context != nullptr) *context = HandleOf(stack.back());
  stack.pop_back();
  return kCudaOk;
}

int cuCtxGetCurrent(void** context) {
  *context = stack.empty() ? nullptr : HandleOf(stack.back());
  return kCudaOk;
}
