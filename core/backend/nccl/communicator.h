#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backend/nccl/gpu_runtime.h"
#include "backend/nccl/outstanding.h"
#include "base/status.h"

namespace hvd::nccl {

// This rank's part of the communicator of one process set, and all that the set owns on the GPU: a
// stream, an event, and a buffer for tensors that travel together. Not thread safe: see in_use.
class Communicator {
 public:
  // A rank without a tensor (`device` negative) takes the GPU of its local rank.
  Communicator(std::shared_ptr<GpuRuntime> runtime, uint32_t set, int size, int position,
               int32_t device)
      : runtime_(std::move(runtime)),
        set_(set),
        size_(size),
        position_(position),
        device_(device) {}
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
  // For messages: "allreduce of 'a' on GPU 0 in process set 1".
  std::string Doing(const std::string& title) const;

  // Once it connects: held by whoever is at work with it, or looks at what it has to do.
  std::mutex& in_use() const { return in_use_; }
  Outstanding& outstanding() { return *outstanding_; }

  // Ends the communicator when all that was begun is done, which Look tells; then Destroy.
  void Finalize();
  void Destroy();
  // Ends it at once: what NCCL runs on the GPU stops.
  void Abort();
  // Whether the stream has nothing to do, so that nothing of it touches memory any more. Also an
  // older NCCL than 2.19 ends its kernels only; copies that were to follow them go on.
  void MarkEnd();
  bool HasEnded() const;

  // From one of the tensors' GPUs to the communicator's, or back, or within it.
  Status Copy(uintptr_t to, int32_t to_device, uintptr_t from, int32_t from_device,
              size_t bytes) const;

  const GpuDriver& driver() const { return *driver_; }
  std::shared_ptr<const GpuDriver> shared_driver() const { return driver_; }
  const NcclFunctions& nccl() const { return nccl_->call(); }
  int32_t device() const { return device_; }
  void* context() const { return context_; }
  void* stream() const { return stream_; }
  void* handle() const { return comm_; }
  std::byte* buffer() const { return static_cast<std::byte*>(buffer_); }

  // Of the context of another GPU of this rank, which one of its tensors may lie on.
  Status ContextOf(int32_t device, void** context) const;

  // Memory in place of the buffer, where that is too small; until it is returned, in the order of
  // the stream. One piece at a time. A small one is kept for the next time: what is freed goes back
  // to the driver whenever the program waits for the GPU, and takes long to get again.
  Status Borrow(int64_t bytes, std::byte** memory);
  Status Return();

  // Of NCCL; 0 where it has not been loaded.
  int version() const { return nccl_ != nullptr ? nccl_->version() : 0; }

  static constexpr size_t kBufferBytes = 16 << 20;
  static constexpr size_t kMostKeptBytes = 256 << 20;

 private:
  void Deregister();
  Status FreeBorrowed();
  void FreeAll();

  const std::shared_ptr<GpuRuntime> runtime_;
  const uint32_t set_;
  const int size_;
  const int position_;
  int32_t device_;
  std::shared_ptr<const GpuDriver> driver_;  // null: not prepared
  std::shared_ptr<const NcclLibrary> nccl_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::shared_ptr<GpuEvent> event_;
  mutable std::mutex in_use_;
  std::optional<Outstanding> outstanding_;  // once it is prepared
  void* comm_ = nullptr;
  void* buffer_ = nullptr;
  bool of_nccl_ = false;  // the buffer
  uintptr_t borrowed_ = 0;
  size_t borrowed_bytes_ = 0;
  void* registration_ = nullptr;
};

}  // namespace hvd::nccl
