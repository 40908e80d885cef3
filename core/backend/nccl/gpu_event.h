#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/nccl/gpu_driver.h"
#include "base/collective.h"
#include "base/status.h"

namespace hvd::nccl {

// An event of one GPU, without a time. It may outlive the communicator that recorded it. No call
// needs a current context, none waits, and all may come from any thread.
class GpuEvent : public DeviceEnd {
 public:
  // `context`: of `device`.
  static Status Make(std::shared_ptr<const GpuDriver> driver, int32_t device, void* context,
                     std::shared_ptr<GpuEvent>* event);
  ~GpuEvent() override;
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  // On a stream of its own GPU.
  Status Record(void* stream) const;
  // An error where the GPU can be used no more.
  Status Happened(bool* happened) const;
  // What it is the end of is about to be aborted: if it has not happened, there is no result.
  void Lose() noexcept;

  Status HaveWait(int32_t device, void* stream) const override;
  bool HasCome() const override;
  bool lost() const override { return lost_.load(); }

 private:
  GpuEvent(std::shared_ptr<const GpuDriver> driver, int32_t device, void* context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  const std::shared_ptr<const GpuDriver> driver_;
  const int32_t device_;
  void* const context_;
  void* event_ = nullptr;
  std::atomic<bool> lost_{false};
};

}  // namespace hvd::nccl
