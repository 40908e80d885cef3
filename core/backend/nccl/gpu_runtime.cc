#include "backend/nccl/gpu_runtime.h"

#include <algorithm>
#include <utility>

namespace hvd::nccl {

Status GpuRuntime::Load(std::shared_ptr<const GpuDriver>* driver,
                        std::shared_ptr<const NcclLibrary>* nccl) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
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

void GpuRuntime::Enter(Occupant* occupant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inside_.push_back(occupant);
}

void GpuRuntime::Leave(const Occupant* occupant) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  inside_.erase(std::find(inside_.begin(), inside_.end(), occupant));
  left_.notify_all();
}

GpuRuntime::Clock::time_point GpuRuntime::AbortAll() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (abort_ends_ == Clock::time_point()) abort_ends_ = Clock::now() + kMostToAbort;
  for (Occupant* occupant : inside_) occupant->WantAbort();
  return abort_ends_;
}

void GpuRuntime::AwaitAll() noexcept {
  const auto empty = [this] { return inside_.empty(); };
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (left_.wait_for(lock, kMostToFinalize, empty)) return;
  }
  AbortAll();
  std::unique_lock<std::mutex> lock(mutex_);
  left_.wait_for(lock, kMostToAbort, empty);
}

void GpuRuntime::Listen(GpuListener listener) {
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  listener_ = std::move(listener);
}

void GpuRuntime::Tell(const std::function<void(const GpuListener& listener)>& tell) {
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  tell(listener_);
}

}  // namespace hvd::nccl
