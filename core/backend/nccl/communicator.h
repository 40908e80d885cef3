#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/nccl/gpu_runtime.h"
#include "base/status.h"

namespace hvd::nccl {

// This rank's part of the communicator of one process set, and all that the set owns on the GPU: a
// stream, an event, and a buffer for tensors that travel together. Not thread safe.
class Communicator {
 public:
  // A rank without a tensor (`device` negative) takes the GPU of its local rank.
  Communicator(std::shared_ptr<GpuRuntime> runtime, int size, int position, int32_t device)
      : runtime_(std::move(runtime)), size_(size), position_(position), device_(device) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // In this order. Each may wait for the driver or for NCCL, none for another rank.
  Status Prepare();
  Status MakeId(UniqueId* id) const;
  Status Connect(const UniqueId& id);
  // After it connects: memory that NCCL may use without copies.
  Status MakeBuffer();

  // Whether NCCL is at work on what was asked last (kInProgress), or has failed.
  int Look() const;
  Status Error(int result, const std::string& doing) const;

  // Ends the communicator when all that was begun is done, which Look tells; then Destroy.
  void Finalize();
  void Destroy();
  // Ends it at once: what runs on the GPU stops.
  void Abort();

  const GpuDriver& driver() const { return *driver_; }
  std::shared_ptr<const GpuDriver> shared_driver() const { return driver_; }
  const NcclFunctions& nccl() const { return nccl_->call(); }
  int32_t device() const { return device_; }
  void* context() const { return context_; }
  void* stream() const { return stream_; }
  void* event() const { return event_; }
  void* handle() const { return comm_; }
  std::byte* buffer() const { return static_cast<std::byte*>(buffer_); }

  // Of the context of another GPU of this rank, which one of its tensors may lie on.
  Status ContextOf(int32_t device, void** context) const;

  // Memory for so long as the stream needs it; in place of the buffer, where that is too small. One
  // piece at a time, which is freed with the communicator at the latest.
  Status Borrow(int64_t bytes, std::byte** memory);
  Status Return();

  // Of NCCL; 0 where it has not been loaded.
  int version() const { return nccl_ != nullptr ? nccl_->version() : 0; }

  static constexpr size_t kBufferBytes = 16 << 20;
  static constexpr unsigned kWithoutTiming = 2;  // of events

 private:
  void Deregister();
  void FreeAll();

  const std::shared_ptr<GpuRuntime> runtime_;
  const int size_;
  const int position_;
  int32_t device_;
  std::shared_ptr<const GpuDriver> driver_;  // null: not prepared
  std::shared_ptr<const NcclLibrary> nccl_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  void* event_ = nullptr;
  void* comm_ = nullptr;
  void* buffer_ = nullptr;
  bool of_nccl_ = false;  // the buffer
  uintptr_t borrowed_ = 0;
  void* registration_ = nullptr;
};

}  // namespace hvd::nccl
