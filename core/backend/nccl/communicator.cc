#include "backend/nccl/communicator.h"

#include <string>
#include <utility>

namespace hvd::nccl {

namespace {

constexpr unsigned kNonBlockingStream = 1;  // does not wait for the stream 0 of the program
constexpr int kHighestPriority = -5;  // the driver takes its own highest for what is beyond it
constexpr size_t kBorrowedUnit = 16 << 20;  // so that one that is kept fits more often

}  // namespace

Communicator::~Communicator() { FreeAll(); }

Status Communicator::Prepare() {
  HVD_RETURN_IF_ERROR(runtime_->Load(&driver_, &nccl_));
  if (device_ < 0) device_ = runtime_->options().local_rank % driver_->devices();
  HVD_RETURN_IF_ERROR(driver_->Context(device_, &context_));
  const DeviceScope scope(*driver_, context_);
  const DriverFunctions& call = driver_->call();
  outstanding_.emplace(driver_, device_, context_);
  HVD_RETURN_IF_ERROR(driver_->Check(
      call.create_stream(&stream_, kNonBlockingStream, kHighestPriority), "making a stream"));
  return GpuEvent::Make(driver_, device_, context_, &event_);
}

Status Communicator::MakeId(UniqueId* id) const {
  const int result = nccl().unique_id(id);
  return result == kSuccess ? Status::Ok() : Error(result, "making a communicator's id");
}

Status Communicator::Connect(const UniqueId& id) {
  const DeviceScope scope(*driver_, context_);
  CommunicatorConfig config = WithoutBlocking();
  const int result = nccl().init(&comm_, size_, id, position_, &config);
  if (result == kSuccess || result == kInProgress) return Status::Ok();
  return Error(result, "setting up a communicator");
}

Status Communicator::MakeBuffer() {
  const DeviceScope scope(*driver_, context_);
  if (!nccl_->registers()) {
    uintptr_t memory = 0;
    HVD_RETURN_IF_ERROR(driver_->Check(driver_->call().allocate(&memory, kBufferBytes, stream_),
                                       "allocating a buffer"));
    buffer_ = reinterpret_cast<void*>(memory);
    return Status::Ok();
  }
  const int allocated = nccl().allocate(&buffer_, kBufferBytes);
  if (allocated != kSuccess) return Error(allocated, "allocating a buffer");
  of_nccl_ = true;
  // Not every network takes memory that way; it is only faster.
  if (nccl().register_memory(comm_, buffer_, kBufferBytes, &registration_) != kSuccess) {
    registration_ = nullptr;
  }
  return Status::Ok();
}

int Communicator::Look() const {
  int state = kSuccess;
  const int result = nccl().async_error(comm_, &state);
  return result == kSuccess ? state : result;
}

Status Communicator::Error(int result, const std::string& doing) const {
  return nccl_->Error(result, comm_, doing);
}

Status Communicator::ContextOf(int32_t device, void** context) const {
  if (device == device_) *context = context_;
  return device == device_ ? Status::Ok() : driver_->Context(device, context);
}

std::string Communicator::Doing(const std::string& title) const {
  return title + " on GPU " + std::to_string(device_) + " in process set " + std::to_string(set_);
}

Status Communicator::Borrow(int64_t bytes, std::byte** memory) {
  const auto wanted = static_cast<size_t>(bytes);
  if (wanted > borrowed_bytes_) {
    HVD_RETURN_IF_ERROR(FreeBorrowed());
    const size_t rounded = (wanted + kBorrowedUnit - 1) / kBorrowedUnit * kBorrowedUnit;
    const size_t room = rounded > kMostKeptBytes ? wanted : rounded;
    HVD_RETURN_IF_ERROR(driver_->Check(driver_->call().allocate(&borrowed_, room, stream_),
                                       "allocating memory for tensors that travel together"));
    borrowed_bytes_ = room;
  }
  *memory = reinterpret_cast<std::byte*>(borrowed_);
  return Status::Ok();
}

Status Communicator::Return() {
  return borrowed_bytes_ > kMostKeptBytes ? FreeBorrowed() : Status::Ok();
}

Status Communicator::FreeBorrowed() {
  borrowed_bytes_ = 0;
  if (borrowed_ == 0) return Status::Ok();
  return driver_->Check(driver_->call().free(std::exchange(borrowed_, 0), stream_),
                        "freeing memory of tensors that travelled together");
}

Status Communicator::Copy(uintptr_t to, int32_t to_device, uintptr_t from, int32_t from_device,
                          size_t bytes) const {
  const DriverFunctions& call = driver_->call();
  int result;
  if (to_device == from_device || call.copy_between == nullptr) {
    result = call.copy(to, from, bytes, stream_);
  } else {
    void* to_context = nullptr;
    void* from_context = nullptr;
    HVD_RETURN_IF_ERROR(ContextOf(to_device, &to_context));
    HVD_RETURN_IF_ERROR(ContextOf(from_device, &from_context));
    result = call.copy_between(to, to_context, from, from_context, bytes, stream_);
  }
  return driver_->Check(result, "copying");
}

void Communicator::Finalize() {
  const DeviceScope scope(*driver_, context_);
  Deregister();
  nccl().finalize(comm_);
}

void Communicator::Destroy() {
  const DeviceScope scope(*driver_, context_);
  nccl().destroy(comm_);
  comm_ = nullptr;
}

// NCCL takes back what was registered itself.
void Communicator::Abort() {
  if (comm_ == nullptr) return;
  const DeviceScope scope(*driver_, context_);
  outstanding_->Lose();
  nccl().abort(comm_);
  comm_ = nullptr;
  registration_ = nullptr;
}

void Communicator::MarkEnd() {
  if (event_ != nullptr) (void)event_->Record(stream_);
}

bool Communicator::HasEnded() const { return event_ == nullptr || event_->HasCome(); }

void Communicator::Deregister() {
  if (registration_ != nullptr) nccl().deregister_memory(comm_, registration_);
  registration_ = nullptr;
}

void Communicator::FreeAll() {
  if (driver_ == nullptr || context_ == nullptr) return;
  const DeviceScope scope(*driver_, context_);
  const DriverFunctions& call = driver_->call();
  (void)FreeBorrowed();
  if (buffer_ != nullptr && of_nccl_) nccl().free(buffer_);
  if (buffer_ != nullptr && !of_nccl_) call.free(reinterpret_cast<uintptr_t>(buffer_), stream_);
  if (stream_ != nullptr) call.destroy_stream(stream_);
}

}  // namespace hvd::nccl
