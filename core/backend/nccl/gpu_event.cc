#include "backend/nccl/gpu_event.h"

#include <utility>

namespace hvd::nccl {

namespace {

constexpr unsigned kWithoutTiming = 2;

Status InGraph() {
  return {Code::kTimeout,
          "the current stream captures a graph, which cannot wait for an operation of horovod that "
          "the GPU has not done yet. Call synchronize before the capture begins, or after it has "
          "ended"};
}

}  // namespace

Status GpuEvent::Make(std::shared_ptr<const GpuDriver> driver, int32_t device, void* context,
                      std::shared_ptr<GpuEvent>* event) {
  std::shared_ptr<GpuEvent> made(new GpuEvent(std::move(driver), device, context));
  const DeviceScope scope(*made->driver_, context);
  const int result = made->driver_->call().create_event(&made->event_, kWithoutTiming);
  HVD_RETURN_IF_ERROR(made->driver_->Check(result, "making an event"));
  *event = std::move(made);
  return Status::Ok();
}

// The driver keeps it for so long as a stream waits.
GpuEvent::~GpuEvent() {
  if (event_ == nullptr) return;
  const DeviceScope scope(*driver_, context_);
  driver_->call().destroy_event(event_);
}

Status GpuEvent::Record(void* stream) const {
  const DeviceScope scope(*driver_, context_);
  return driver_->Check(driver_->call().record_event(event_, stream), "recording an event");
}

Status GpuEvent::Happened(bool* happened) const {
  const DeviceScope scope(*driver_, context_);
  return driver_->Happened(event_, happened);
}

void GpuEvent::Lose() noexcept {
  const DeviceScope scope(*driver_, context_);
  if (driver_->call().query_event(event_) != 0) lost_.store(true);
}

// A graph that is recorded needs no wait for what has happened.
Status GpuEvent::HaveWait(int32_t device, void* stream) const {
  void* context = context_;
  if (device != device_) HVD_RETURN_IF_ERROR(driver_->Context(device, &context));
  const DeviceScope scope(*driver_, context);
  bool records = false;
  HVD_RETURN_IF_ERROR(driver_->IsCapturing(stream, &records));
  const int result = records ? 0 : driver_->call().wait_for_event(stream, event_, 0);
  if (!records && !GpuDriver::IsOfCapture(result))
    return driver_->Check(result, "having a stream wait for an event");
  return HasCome() ? Status::Ok() : InGraph();
}

bool GpuEvent::HasCome() const {
  bool happened = false;
  return lost() || !Happened(&happened).ok() || happened;
}

}  // namespace hvd::nccl
