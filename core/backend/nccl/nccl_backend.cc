#include "backend/nccl/nccl_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/nccl/gpu_collective.h"
#include "backend/nccl/reduction.h"
#include "backend/nccl/session.h"
#include "backend/nccl/setting_up.h"

namespace hvd {

namespace {

using nccl::Communicator;
using nccl::DeviceScope;
using nccl::GpuDriver;

// The GPU that a set's communicator uses on this rank: that of the first tensor. Negative: it
// brings none.
int32_t DeviceOf(const CollectiveSpec& first) {
  for (const DeviceOrder& order : first.order) {
    if (order.device >= 0) return order.device;
  }
  return kHostDevice;
}

class NcclBackend : public Backend {
 public:
  NcclBackend(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host, uint32_t set,
              Members members, Position position)
      : runtime_(std::move(runtime)),
        host_(host),
        set_(set),
        members_(std::move(members)),
        position_(position) {}

  bool Serves(const CollectiveSpec& spec) const override {
    const Reduction& reduction = spec.reduction;
    return KindOf(spec.device) == DeviceKind::kGpu &&
           nccl::Carries(spec.kind, reduction.dtype, reduction.op, reduction.prescale,
                         reduction.postscale);
  }

  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& first, const Waker& waker) override {
    const Status begun = nccl::Session::Begin(runtime_, set_, members_.size(), position_.value(),
                                              DeviceOf(first), waker, &session_);
    if (!begun.ok()) return MakeFailed(begun);
    return nccl::MakeSettingUp(session_.get(), host_, members_, position_, first.sequence);
  }

  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    return nccl::MakeGpuCollective(std::move(spec), &session_->communicator(), position_.value(),
                                   members_.size());
  }

  Status Allocate(const DeviceOrder& order, int64_t bytes,
                  std::shared_ptr<std::byte>* memory) override;

  void Abort() noexcept override {
    if (session_ != nullptr) session_->Abort();
  }

 private:
  const std::shared_ptr<nccl::GpuRuntime> runtime_;
  Backend* const host_;
  const uint32_t set_;
  const Members members_;
  const Position position_;
  std::unique_ptr<nccl::Session> session_;  // null: not set up
};

// On the communicator's stream, which is about to write there; on another GPU on the tensor's own,
// for which the communicator's waits.
Status NcclBackend::Allocate(const DeviceOrder& order, int64_t bytes,
                             std::shared_ptr<std::byte>* memory) {
  const Communicator& communicator = session_->communicator();
  const GpuDriver& driver = communicator.driver();
  const nccl::DriverFunctions& call = driver.call();
  void* context = nullptr;
  HVD_RETURN_IF_ERROR(communicator.ContextOf(order.device, &context));
  const bool here = order.device == communicator.device();
  void* const stream = here ? communicator.stream() : order.stream;
  const DeviceScope scope(driver, context);
  uintptr_t address = 0;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));  // the driver refuses 0
  HVD_RETURN_IF_ERROR(
      driver.Check(call.allocate(&address, size, stream), "allocating a result on the GPU"));
  std::shared_ptr<nccl::GpuEvent> allocated;
  Status status =
      nccl::GpuEvent::Make(communicator.shared_driver(), order.device, context, &allocated);
  if (status.ok()) status = allocated->Record(stream);
  DeviceFree free;
  free.end = allocated;
  free.stream = order.stream;
  free.device = order.device;
  free.rocm = driver.rocm();
  free.free = [held = communicator.shared_driver(), context](void* data, void* after) {
    const DeviceScope inside(*held, context);
    held->call().free(reinterpret_cast<uintptr_t>(data), after);
  };
  *memory = {reinterpret_cast<std::byte*>(address), std::move(free)};
  if (status.ok() && !here)
    status = allocated->HaveWait(communicator.device(), communicator.stream());
  return status;
}

}  // namespace

std::unique_ptr<Backend> MakeNcclBackend(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host,
                                         uint32_t set, Members members, Position position) {
  return std::make_unique<NcclBackend>(std::move(runtime), host, set, std::move(members), position);
}

}  // namespace hvd
