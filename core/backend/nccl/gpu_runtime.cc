#include "backend/nccl/gpu_runtime.h"

#include <chrono>

namespace hvd::nccl {

Status GpuRuntime::Load(std::shared_ptr<const GpuDriver>* driver,
                        std::shared_ptr<const NcclLibrary>* nccl) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!loaded_) {
    loaded_ = true;
    status_ = GpuDriver::Load(options_.driver, &driver_);
    if (status_.ok()) status_ = NcclLibrary::Load(options_.library, &nccl_);
  }
  *driver = driver_;
  *nccl = nccl_;
  return status_;
}

bool GpuRuntime::ReducesFloat8() {
  constexpr int kLeastCapability = 9;
  std::shared_ptr<const GpuDriver> driver;
  std::shared_ptr<const NcclLibrary> nccl;
  if (!Load(&driver, &nccl).ok()) return false;
  return nccl->has_float8() && driver->capability() >= kLeastCapability;
}

void GpuRuntime::Enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++inside_;
}

void GpuRuntime::Leave() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  --inside_;
  left_.notify_all();
}

void GpuRuntime::AwaitAll(int64_t limit_us) {
  std::unique_lock<std::mutex> lock(mutex_);
  left_.wait_for(lock, std::chrono::microseconds(limit_us), [this] { return inside_ == 0; });
}

}  // namespace hvd::nccl
