#include "backend_on_gpu.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/nccl/nccl_backend.h"
#include "backend/nccl/reduction.h"
#include "base/clock.h"

namespace hvd::test {

namespace {

using nccl::DeviceScope;
using nccl::GpuDriver;

constexpr int kDevices = 2;
constexpr int64_t kPauseUs = 100;

void Must(const Status& status) {
  if (!status.ok()) std::abort();
}

// What a framework has on one GPU.
class Device {
 public:
  Device(std::shared_ptr<const GpuDriver> driver, int number)
      : driver_(std::move(driver)), number_(number) {
    Must(driver_->Context(number, &context_));
    const DeviceScope scope(*driver_, context_);
    Check(driver_->call().create_stream(&stream_, 1, 0));
  }
  ~Device() {
    const DeviceScope scope(*driver_, context_);
    driver_->call().destroy_stream(stream_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int number() const { return number_; }
  void* stream() const { return stream_; }

  std::byte* Allocate(int64_t bytes) const {
    if (bytes == 0) return nullptr;
    const DeviceScope scope(*driver_, context_);
    uintptr_t address = 0;
    Check(driver_->call().allocate(&address, static_cast<size_t>(bytes), stream_));
    return reinterpret_cast<std::byte*>(address);
  }
  void Free(std::byte* memory) const {
    const DeviceScope scope(*driver_, context_);
    if (memory != nullptr)
      Check(driver_->call().free(reinterpret_cast<uintptr_t>(memory), stream_));
  }
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) const {
    if (bytes == 0) return;
    const DeviceScope scope(*driver_, context_);
    Check(driver_->call().copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                               static_cast<size_t>(bytes), stream_));
  }
  void* Record() const {
    const DeviceScope scope(*driver_, context_);
    void* event = nullptr;
    Check(driver_->call().create_event(&event, 2));
    Check(driver_->call().record_event(event, stream_));
    return event;
  }
  bool Happened(void* event) const {
    const DeviceScope scope(*driver_, context_);
    return driver_->call().query_event(event) == 0;
  }
  void Destroy(void* event) const {
    const DeviceScope scope(*driver_, context_);
    Check(driver_->call().destroy_event(event));
  }

 private:
  void Check(int result) const { Must(driver_->Check(result, "a test")); }

  const std::shared_ptr<const GpuDriver> driver_;
  const int number_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
};

// A tensor's way to a GPU and back: what the host writes and reads there, and what the collective
// works on.
struct Travelling {
  Piece host;
  const Device* device = nullptr;
  int64_t output_bytes = 0;
  std::byte* written = nullptr;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* read = nullptr;
  void* ready = nullptr;
  void* done = nullptr;

  // The memory of a GPU of a stand-in is the host's, too.
  void Go() {
    written = device->Allocate(host.bytes);
    input = device->Allocate(host.bytes);
    output = host.input == host.output ? input : device->Allocate(output_bytes);
    read = device->Allocate(output_bytes);
    if (host.bytes > 0) std::memcpy(written, host.input, static_cast<size_t>(host.bytes));
    device->Copy(input, written, host.bytes);
    ready = device->Record();
  }
  void Return(const DeviceEnd& end) {
    Must(end.HaveWait(device->number(), device->stream()));
    device->Copy(read, output, output_bytes);
    done = device->Record();
  }
  void Arrive() {
    if (output_bytes > 0) std::memcpy(host.output, read, static_cast<size_t>(output_bytes));
  }
  void Free() const {
    device->Free(written);
    device->Free(input);
    if (output != input) device->Free(output);
    device->Free(read);
    if (ready != nullptr) device->Destroy(ready);
    if (done != nullptr) device->Destroy(done);
  }
};

int64_t OutputBytes(const CollectiveSpec& spec, size_t piece, int position) {
  if (spec.shares.empty()) return spec.pieces[piece].bytes;
  const auto& [to, from] = spec.shares[piece];
  if (spec.kind == OpKind::kReducescatter) return to[static_cast<size_t>(position)];
  return std::accumulate(from.begin(), from.end(), int64_t{0});
}

class OnGpu : public StepMachine {
 public:
  OnGpu(CollectiveSpec spec, Backend* gpu, const std::vector<std::unique_ptr<Device>>& devices,
        int position) {
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      // Now and then one lies on another GPU than the communicator.
      const auto number = static_cast<int32_t>((static_cast<size_t>(position) + i / 3) % kDevices);
      Travelling piece;
      piece.host = spec.pieces[i];
      piece.device = devices[static_cast<size_t>(number)].get();
      piece.output_bytes = OutputBytes(spec, i, position);
      piece.Go();
      spec.pieces[i] = {piece.input, piece.output, piece.host.bytes};
      spec.order.push_back({piece.device->stream(), piece.ready, number});
      pieces_.push_back(piece);
    }
    spec.end = &end_;
    spec.device = 0;
    machine_ = gpu->Start(std::move(spec));
  }
  ~OnGpu() override {
    machine_.reset();
    for (const Travelling& piece : pieces_) piece.Free();
  }

  Status status() const override { return machine_->status(); }
  int64_t deadline_us() const override {
    return returns_ ? NowMicros() + kPauseUs : machine_->deadline_us();
  }

 private:
  Step TakeStep() override {
    if (returns_) return Await();
    const Step step = machine_->Advance();
    if (step != Step::kDone) return step;
    for (Travelling& piece : pieces_) piece.Return(*end_);
    returns_ = true;
    return Step::kProgressed;
  }

  Step Await() {
    for (const Travelling& piece : pieces_) {
      if (!piece.device->Happened(piece.done)) return Step::kBlocked;
    }
    for (Travelling& piece : pieces_) piece.Arrive();
    return Step::kDone;
  }

  std::vector<Travelling> pieces_;
  std::shared_ptr<const DeviceEnd> end_;
  std::unique_ptr<StepMachine> machine_;
  bool returns_ = false;
};

class BackendOnGpu : public Backend {
 public:
  BackendOnGpu(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host, uint32_t set,
               const Members& members, Position position)
      : gpu_(MakeNcclBackend(runtime, host, set, members, position)), position_(position.value()) {
    std::shared_ptr<const GpuDriver> driver;
    Must(GpuDriver::Load(runtime->options().driver, &driver));
    for (int number = 0; number < kDevices; ++number) {
      devices_.push_back(std::make_unique<Device>(driver, number));
    }
  }

  bool Serves(const CollectiveSpec& spec) const override {
    const Reduction& reduction = spec.reduction;
    return nccl::Carries(spec.kind, reduction.dtype, reduction.op, reduction.prescale,
                         reduction.postscale);
  }
  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& first, const Waker& waker) override {
    CollectiveSpec on_gpu = first;
    on_gpu.order.push_back({nullptr, nullptr, position_ % kDevices});
    return gpu_->SetUp(on_gpu, waker);
  }
  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    return std::make_unique<OnGpu>(std::move(spec), gpu_.get(), devices_, position_);
  }
  Status Allocate(const DeviceOrder& order, int64_t bytes,
                  std::shared_ptr<std::byte>* memory) override {
    return gpu_->Allocate(order, bytes, memory);
  }
  void Abort() noexcept override { gpu_->Abort(); }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  const std::unique_ptr<Backend> gpu_;
  const int position_;
};

}  // namespace

std::unique_ptr<Backend> MakeBackendOnGpu(std::shared_ptr<nccl::GpuRuntime> runtime, Backend* host,
                                          uint32_t set, const Members& members, Position position) {
  return std::make_unique<BackendOnGpu>(std::move(runtime), host, set, members, position);
}

}  // namespace hvd::test
