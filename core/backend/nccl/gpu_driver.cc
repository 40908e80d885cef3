#include "backend/nccl/gpu_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace hvd::nccl {

namespace {

constexpr int kSuccess = 0;
constexpr int kNotReady = 600;
constexpr int kRelaxedCapture = 2;
// The errors that have to do with streams that record a graph.
constexpr int kFirstOfCapture = 900;
constexpr int kLastOfCapture = 908;
constexpr int kCapability = 75;  // of CUDA's attributes; ROCm has other numbers

// Where a function lies in DriverFunctions, and what each driver calls it; null: it is not needed.
struct Name {
  size_t place;
  const char* cuda;
  const char* rocm;
};

#define HVD_PLACE(member) offsetof(DriverFunctions, member)
constexpr Name kNames[] = {
    {HVD_PLACE(init), "cuInit", "hipInit"},
    {HVD_PLACE(device_count), "cuDeviceGetCount", "hipGetDeviceCount"},
    {HVD_PLACE(device), "cuDeviceGet", "hipDeviceGet"},
    {HVD_PLACE(attribute), "cuDeviceGetAttribute", "hipDeviceGetAttribute"},
    {HVD_PLACE(retain_context), "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain"},
    {HVD_PLACE(push_context), "cuCtxPushCurrent_v2", "hipCtxPushCurrent"},
    {HVD_PLACE(pop_context), "cuCtxPopCurrent_v2", "hipCtxPopCurrent"},
    {HVD_PLACE(create_stream), "cuStreamCreateWithPriority", "hipStreamCreateWithPriority"},
    {HVD_PLACE(destroy_stream), "cuStreamDestroy_v2", "hipStreamDestroy"},
    {HVD_PLACE(wait_for_event), "cuStreamWaitEvent", "hipStreamWaitEvent"},
    {HVD_PLACE(create_event), "cuEventCreate", "hipEventCreateWithFlags"},
    {HVD_PLACE(destroy_event), "cuEventDestroy_v2", "hipEventDestroy"},
    {HVD_PLACE(record_event), "cuEventRecord", "hipEventRecord"},
    {HVD_PLACE(query_event), "cuEventQuery", "hipEventQuery"},
    {HVD_PLACE(allocate), "cuMemAllocAsync", "hipMallocAsync"},
    {HVD_PLACE(free), "cuMemFreeAsync", "hipFreeAsync"},
    {HVD_PLACE(copy), "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"},
    {HVD_PLACE(copy_between), "cuMemcpyPeerAsync", nullptr},
    {HVD_PLACE(fill), "cuMemsetD8Async", "hipMemsetD8Async"},
    {HVD_PLACE(is_capturing), "cuStreamIsCapturing", "hipStreamIsCapturing"},
    {HVD_PLACE(exchange_capture_mode), "cuThreadExchangeStreamCaptureMode",
     "hipThreadExchangeStreamCaptureMode"},
    {HVD_PLACE(error_text), "cuGetErrorString", "hipDrvGetErrorString"},
};
#undef HVD_PLACE

Status Find(void* library, const std::string& path, bool rocm, DriverFunctions* call) {
  for (const Name& name : kNames) {
    const char* const wanted = rocm ? name.rocm : name.cuda;
    if (wanted == nullptr) continue;
    void* const found = dlsym(library, wanted);
    if (found == nullptr) {
      return {Code::kUnavailable, "the GPU driver " + path + " is too old: it has no " + wanted +
                                      ". Install a newer one (CUDA 11.2, or ROCm 5.2)"};
    }
    *reinterpret_cast<void**>(reinterpret_cast<char*>(call) + name.place) = found;
  }
  return Status::Ok();
}

}  // namespace

Status GpuDriver::Load(const std::string& path, std::shared_ptr<const GpuDriver>* driver) {
  auto loaded = std::make_shared<GpuDriver>();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {Code::kUnavailable, std::string("the GPU driver cannot be loaded: ") + dlerror()};
  }
  loaded->rocm_ = dlsym(library, kNames[0].cuda) == nullptr;
  HVD_RETURN_IF_ERROR(Find(library, path, loaded->rocm_, &loaded->call_));
  HVD_RETURN_IF_ERROR(loaded->Check(loaded->call_.init(0), "initialising the GPU driver"));
  HVD_RETURN_IF_ERROR(
      loaded->Check(loaded->call_.device_count(&loaded->devices_), "counting GPUs"));
  if (loaded->devices_ == 0) return {Code::kUnavailable, "the GPU driver shows no GPU"};
  if (!loaded->rocm_) HVD_RETURN_IF_ERROR(loaded->FindCapability());
  *driver = std::move(loaded);
  return Status::Ok();
}

Status GpuDriver::FindCapability() {
  capability_ = std::numeric_limits<int>::max();
  for (int number = 0; number < devices_; ++number) {
    int device = 0;
    int capability = 0;
    HVD_RETURN_IF_ERROR(Check(call_.device(&device, number), "choosing the GPU"));
    HVD_RETURN_IF_ERROR(
        Check(call_.attribute(&capability, kCapability, device), "asking what a GPU can do"));
    capability_ = std::min(capability_, capability);
  }
  return Status::Ok();
}

Status GpuDriver::Context(int device, void** context) const {
  int handle = 0;
  HVD_RETURN_IF_ERROR(Check(call_.device(&handle, device), "choosing the GPU"));
  return Check(call_.retain_context(context, handle), "using the GPU");
}

Status GpuDriver::Check(int result, const char* doing) const {
  if (result == kSuccess) return Status::Ok();
  const char* text = nullptr;
  if (call_.error_text(result, &text) != kSuccess || text == nullptr) text = "unknown error";
  return {Code::kUnavailable, std::string(doing) + " failed: " + text + " (error " +
                                  std::to_string(result) + " of the GPU driver)"};
}

Status GpuDriver::Happened(void* event, bool* happened) const {
  const int result = call_.query_event(event);
  *happened = result == kSuccess;
  return result == kNotReady ? Status::Ok() : Check(result, "asking how far the GPU is");
}

bool GpuDriver::IsOfCapture(int result) {
  return result >= kFirstOfCapture && result <= kLastOfCapture;
}

Status GpuDriver::IsCapturing(void* stream, bool* capturing) const {
  int status = 0;
  const int result = call_.is_capturing(stream, &status);
  *capturing = IsOfCapture(result) || status != 0;
  return *capturing ? Status::Ok() : Check(result, "asking whether a stream records a graph");
}

DeviceScope::DeviceScope(const GpuDriver& driver, void* context)
    : call_(driver.call()), capture_mode_(kRelaxedCapture) {
  pushed_ = call_.push_context(context) == kSuccess;
  call_.exchange_capture_mode(&capture_mode_);
}

DeviceScope::~DeviceScope() {
  call_.exchange_capture_mode(&capture_mode_);
  void* popped;
  if (pushed_) call_.pop_context(&popped);
}

}  // namespace hvd::nccl
