#pragma once

// The backend of GPUs bare: the test itself plays the framework, with one tensor on a GPU.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/nccl/nccl_backend.h"
#include "check.h"
#include "device.h"
#include "ranks.h"

namespace hvd::test {

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Whether it holds within some seconds.
inline bool Comes(const std::function<bool()>& holds, int milliseconds = 20000) {
  for (int i = 0; i < milliseconds && !holds(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

// One of two ranks, with the communicator on the GPU of its number; used by one thread.
class BareGpu {
 public:
  // Of a World of kInprocWindow. `lies`: the GPU with the tensor.
  BareGpu(World* world, int r, int lies)
      : lies_(lies),
        device_(lies),
        rank_(world, r),
        world_(world),
        tensor_(std::vector<float>(kElements, 1.0f)) {
    for (auto& gradient : gradients_)
      gradient =
          std::make_unique<fake_gpu::test::Buffer<float>>(std::vector<float>(kElements, 1.0f));
    nccl::GpuOptions options;
    options.driver = std::string(HVD_FAKE_GPU_FOLDER) + "/libcuda.so.1";
    options.library = std::string(HVD_FAKE_GPU_FOLDER) + "/libnccl.so.2";
    options.rank = GlobalRank(r);
    options.timeout_us = 30'000'000;
    runtime_ = std::make_shared<nccl::GpuRuntime>(options);
  }

  // Its tensors are freed behind what its stream has waited for.
  ~BareGpu() { EXPECT_EQ(cuStreamSynchronize(stream_), 0); }
  BareGpu(const BareGpu&) = delete;
  BareGpu& operator=(const BareGpu&) = delete;

  static constexpr size_t kElements = 10;

  nccl::GpuRuntime& runtime() const { return *runtime_; }
  void* stream() const { return stream_; }
  const float* data() const { return static_cast<const float*>(tensor_.data()); }
  void Fill(unsigned char byte) const {
    EXPECT_EQ(cuMemsetD8Async(tensor_.address(), byte, kElements * sizeof(float), stream_), 0);
    EXPECT_EQ(cuStreamSynchronize(stream_), 0);
  }
  std::vector<float> Read() const { return tensor_.Read(stream_); }

  // A backend of a set of both ranks, set up with the other rank.
  Backend* Join(uint32_t set) {
    Backend* host = nullptr;
    const Members members(world_->Everybody());
    if (!rank_.Join(set, world_->Everybody(), &host).ok()) return nullptr;
    const Position position = members.Find(GlobalRank(rank_.rank()));
    backends_.push_back(MakeNcclBackend(runtime_, host, set, members, position));
    const auto machine = backends_.back()->SetUp(Sum(rank_.rank()), waker_);
    EXPECT_TRUE(Comes([&] { return machine->Advance() == Step::kDone; }));
    return backends_.back().get();
  }

  // Its sets end, as they do without an error.
  void Leave() { backends_.clear(); }

  // Of the tensor in place, behind all that the stream has.
  CollectiveSpec Sum() { return Sum(lies_); }

  // Of one of ten others.
  CollectiveSpec Gradient(int layer) { return Sum(lies_, *gradients_[static_cast<size_t>(layer)]); }

  // Until the GPU has all of it. Its end, for which no stream waits yet.
  static std::shared_ptr<const DeviceEnd> Begin(Backend* backend, CollectiveSpec spec) {
    std::shared_ptr<const DeviceEnd> end;
    spec.end = &end;
    const auto machine = backend->Start(std::move(spec));
    EXPECT_TRUE(Comes([&] { return machine->Advance() == Step::kDone; }));
    return end;
  }

  // Likewise, and the stream waits for it.
  static void Give(Backend* backend, CollectiveSpec spec) {
    const DeviceOrder order = spec.order.front();
    const auto end = Begin(backend, std::move(spec));
    EXPECT_TRUE(end != nullptr && end->HaveWait(order.device, order.stream).ok());
  }

 private:
  CollectiveSpec Sum(int device) { return Sum(device, tensor_); }
  CollectiveSpec Sum(int device, const fake_gpu::test::Buffer<float>& tensor) {
    EXPECT_EQ(cuEventRecord(ready_, stream_), 0);
    CollectiveSpec spec;
    spec.title = "allreduce of 'x'";
    spec.device = device;
    auto* const data = static_cast<std::byte*>(tensor.data());
    spec.pieces.push_back({data, data, static_cast<int64_t>(kElements * sizeof(float))});
    spec.order.push_back({stream_, ready_, device});
    return spec;
  }

  const int lies_;
  const fake_gpu::test::Device device_;  // first: it is current
  Rank rank_;
  World* const world_;
  Waker waker_;
  fake_gpu::test::TestStream stream_;
  fake_gpu::test::TestEvent ready_;
  const fake_gpu::test::Buffer<float> tensor_;
  std::array<std::unique_ptr<fake_gpu::test::Buffer<float>>, 10> gradients_;
  std::shared_ptr<nccl::GpuRuntime> runtime_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

// Two ranks with a set of both; they leave together. `elsewhere`: the tensor lies on another GPU
// than the communicator.
inline void WithTwo(const std::function<void(BareGpu& gpu, Backend* backend, int rank)>& body,
                    bool elsewhere = false) {
  World world(Medium::kInprocWindow, 2);
  std::atomic<int> done{0};
  RunRanks(2, [&](int r) {
    BareGpu gpu(&world, r, elsewhere ? 1 - r : r);
    Backend* const backend = gpu.Join(3);
    ASSERT_TRUE(backend != nullptr);
    body(gpu, backend, r);
    ++done;
    EXPECT_TRUE(Comes([&] { return done.load() == 2; }, 10000));
    backend->Abort();
    gpu.runtime().Listen({});
  });
}

}  // namespace hvd::test
