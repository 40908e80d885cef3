#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

// The part of a GPU's driver that collectives need: CUDA's, or that of ROCm, whose functions are
// the same under other names. Loaded at run time: nothing of either is needed to build or to start.

namespace hvd::nccl {

// As the driver declares them, with pointers for all that only it looks into.
struct DriverFunctions {
  int (*init)(unsigned flags);
  int (*device_count)(int* count);
  int (*device)(int* device, int number);
  int (*attribute)(int* value, int which, int device);
  int (*retain_context)(void** context, int device);
  int (*push_context)(void* context);
  int (*pop_context)(void** context);
  int (*create_stream)(void** stream, unsigned flags, int priority);
  int (*destroy_stream)(void* stream);
  int (*wait_for_event)(void* stream, void* event, unsigned flags);
  int (*create_event)(void** event, unsigned flags);
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*query_event)(void* event);
  // In the order of a stream. What frees at once waits for all work on the GPU, and so for other
  // ranks.
  int (*allocate)(uintptr_t* memory, size_t bytes, void* stream);
  int (*free)(uintptr_t memory, void* stream);
  int (*copy)(uintptr_t to, uintptr_t from, size_t bytes, void* stream);
  // Between two GPUs, also where neither reaches the other's memory. Null with ROCm, whose `copy`
  // does that.
  int (*copy_between)(uintptr_t to, void* to_context, uintptr_t from, void* from_context,
                      size_t bytes, void* stream);
  int (*fill)(uintptr_t to, unsigned char value, size_t bytes, void* stream);
  int (*is_capturing)(void* stream, int* status);
  int (*exchange_capture_mode)(int* mode);
  int (*error_text)(int error, const char** text);
};

class GpuDriver {
 public:
  // Loads and initialises the driver in the file `path`. It stays loaded.
  static Status Load(const std::string& path, std::shared_ptr<const GpuDriver>* driver);

  const DriverFunctions& call() const { return call_; }
  int devices() const { return devices_; }
  bool rocm() const { return rocm_; }
  // The least compute capability of the GPUs, of which this is the first number; 0 of those of AMD.
  int capability() const { return capability_; }

  // The context that frameworks use on a device, too; held until the process ends, as theirs is.
  Status Context(int device, void** context) const;

  // The error of a call, or Ok.
  Status Check(int result, const char* doing) const;

  // Whether an event has happened; an error where the GPU can be used no more. Of its context.
  Status Happened(void* event, bool* happened) const;

  // Whether a stream of the current context records a graph: it must be given nothing then that is
  // no part of the graph.
  Status IsCapturing(void* stream, bool* capturing) const;
  // Whether a call failed because of that.
  static bool IsOfCapture(int result);

 private:
  Status FindCapability();

  DriverFunctions call_ = {};
  int devices_ = 0;
  int capability_ = 0;
  bool rocm_ = false;
};

// While it lives, calls of this thread are for one device, also while another stream of the process
// records a graph. Both are the calling thread's own, which may be the user's: they are restored.
class DeviceScope {
 public:
  DeviceScope(const GpuDriver& driver, void* context);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const DriverFunctions& call_;
  int capture_mode_;
  bool pushed_;
};

}  // namespace hvd::nccl
