// What a GPU does with what it was given, after the host is done with it.

#include <dirent.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

#include "backend/bare_gpu.h"

namespace hvd::test {
namespace {

using fake_gpu::test::Environment;
using fake_gpu::test::Gate;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a rank's listener has heard.
class Heard {
 public:
  void ListenTo(nccl::GpuRuntime& runtime, int64_t warning_us = 0, int64_t failure_us = 0) {
    nccl::GpuListener listener;
    listener.warning_us = warning_us;
    listener.failure_us = failure_us;
    listener.on_stall = [this](const std::string& report, bool first) {
      const std::lock_guard<std::mutex> lock(mutex_);
      reports_.push_back(report);
      firsts_ += first ? 1 : 0;
    };
    listener.on_trouble = [this](nccl::GpuTrouble trouble) {
      const std::lock_guard<std::mutex> lock(mutex_);
      troubles_.push_back(std::move(trouble));
    };
    runtime.Listen(std::move(listener));
  }

  size_t troubles() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return troubles_.size();
  }
  nccl::GpuTrouble trouble() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return troubles_.empty() ? nccl::GpuTrouble() : troubles_.front();
  }
  std::vector<std::string> reports() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reports_;
  }
  int firsts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return firsts_;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::vector<nccl::GpuTrouble> troubles_;
  std::vector<std::string> reports_;
  int firsts_ = 0;
};

TEST(NcclWatch, ANetworkThatFailsIsToldWhileTheGpuWorks) {
  const Environment environment("FAKE_NCCL_ASYNC_FAIL_AT", "2:1");
  std::atomic<bool> told{false};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    Heard heard;
    heard.ListenTo(gpu.runtime());
    for (int i = 0; i < 2; ++i) BareGpu::Give(backend, gpu.Sum());
    const auto began = Clock::now();
    if (rank == 0) {
      EXPECT_TRUE(Comes([&] { return told.load(); }));
      EXPECT_EQ(heard.troubles(), size_t{0});
    } else {
      EXPECT_TRUE(Comes([&] { return heard.troubles() > 0; }));
      EXPECT_TRUE(Clock::now() - began < milliseconds(5000));
      const nccl::GpuTrouble trouble = heard.trouble();
      EXPECT_TRUE(Has(trouble.reason,
                      "rank 1 cannot go on: NCCL failed during allreduce of 'x' on "
                      "GPU 1 in process set 3: remote process exited"));
      EXPECT_EQ(trouble.culprit.value(), 1);
      EXPECT_FALSE(trouble.stalled);
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_EQ(heard.troubles(), size_t{1});
      told.store(true);
    }
    backend->Abort();
    EXPECT_EQ(cuStreamSynchronize(gpu.stream()), 0);
    gpu.runtime().Listen({});
  });
}

// Has a stream read what another has freed.
void BreakGpu(void* stream, void* other, const fake_gpu::test::Buffer<float>& to) {
  CudaAddress freed = 0;
  EXPECT_EQ(cuMemAllocAsync(&freed, 16, other), 0);
  EXPECT_EQ(cuStreamSynchronize(other), 0);
  const Gate gate(stream);
  cuMemcpyDtoDAsync_v2(to.address(), freed, 16, stream);
  cuMemFreeAsync(freed, other);
  EXPECT_EQ(cuStreamSynchronize(other), 0);
}

TEST(NcclWatch, AGpuThatFailsIsTold) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  std::atomic<bool> told{false};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    Heard heard;
    heard.ListenTo(gpu.runtime());
    if (rank == 1) {
      const fake_gpu::test::TestStream stream;
      const fake_gpu::test::TestStream other;
      const fake_gpu::test::Buffer<float> to(4);
      BareGpu::Give(backend, gpu.Sum());
      BreakGpu(stream, other, to);
      EXPECT_TRUE(Comes([&] { return heard.troubles() > 0; }));
      EXPECT_TRUE(Has(heard.trouble().reason, "rank 1 cannot go on: allreduce of 'x' on GPU 1"));
      EXPECT_TRUE(Has(heard.trouble().reason, "error 700 of the GPU driver"));
      told.store(true);
      fake_gpu_forget();
    }
    EXPECT_TRUE(Comes([&] { return told.load(); }));
    gpu.runtime().Listen({});
  });
}

// Rank 1's program has its GPU do something else first.
TEST(NcclWatch, WhatAGpuDoesNotFinishIsReportedOnEveryRank) {
  const Environment environment;
  std::atomic<int> told{0};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    Heard heard;
    heard.ListenTo(gpu.runtime(), 200'000);
    std::unique_ptr<Gate> gate;
    if (rank == 1) gate = std::make_unique<Gate>(gpu.stream());
    BareGpu::Give(backend, gpu.Sum());
    EXPECT_TRUE(Comes([&] { return heard.reports().size() >= 2; }));
    const std::string report = heard.reports().back();
    EXPECT_TRUE(Has(report, rank == 1
                                ? "rank 1's GPU has not reached the allreduce of 'x' on GPU 1 "
                                  "in process set 3"
                                : "rank 0's GPU has not finished the allreduce of 'x'"));
    EXPECT_EQ(heard.firsts(), 1);
    ++told;
    EXPECT_TRUE(Comes([&] { return told.load() == 2; }));
    gate.reset();
    EXPECT_TRUE(gpu.Read() == std::vector<float>(BareGpu::kElements, 2.0f));
    EXPECT_EQ(heard.troubles(), size_t{0});
    gpu.runtime().Listen({});
  });
}

TEST(NcclWatch, AnExplicitLimitEndsTheJobAndNamesTheRankThatHoldsUp) {
  const Environment environment;
  std::atomic<int> told{0};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    Heard heard;
    heard.ListenTo(gpu.runtime(), 0, 400'000);
    std::unique_ptr<Gate> gate;
    if (rank == 1) gate = std::make_unique<Gate>(gpu.stream());
    BareGpu::Give(backend, gpu.Sum());
    EXPECT_TRUE(Comes([&] { return heard.troubles() > 0; }));
    const int before = told++;
    EXPECT_EQ(before, 1 - rank);  // the one that others wait for speaks first
    const nccl::GpuTrouble trouble = heard.trouble();
    EXPECT_TRUE(trouble.stalled);
    EXPECT_EQ(trouble.culprit == GlobalRank(1), rank == 1);
    EXPECT_EQ(Has(trouble.reason, "has not reached the allreduce of 'x'"), rank == 1);
    EXPECT_TRUE(Comes([&] { return told.load() == 2; }));
    gpu.runtime().Listen({});
  });
}

// How often the threads of sessions have slept.
int64_t Sleeps() {
  int64_t total = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    std::ifstream(folder + "/comm") >> name;
    if (name != "hvd-nccl") continue;
    std::ifstream status(folder + "/status");
    for (std::string word; status >> word;) {
      if (word != "voluntary_ctxt_switches:") continue;
      int64_t count = 0;
      status >> count;
      total += count;
    }
  }
  closedir(tasks);
  return total;
}

TEST(NcclWatch, NobodyLooksAtAGpuWithoutWork) {
  const Environment environment;
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    for (int i = 0; i < 5; ++i) BareGpu::Give(backend, gpu.Sum());
    EXPECT_TRUE(gpu.Read() == std::vector<float>(BareGpu::kElements, 32.0f));
    std::this_thread::sleep_for(milliseconds(1000));
    if (rank == 1) return;
    bool sleeps = false;  // on a busy machine, the last look may be late
    for (int i = 0; i < 20 && !sleeps; ++i) {
      const int64_t before = Sleeps();
      EXPECT_TRUE(before > 0);
      std::this_thread::sleep_for(milliseconds(500));
      sleeps = Sleeps() == before;
    }
    EXPECT_TRUE(sleeps);
  });
}

// A driver may take seconds to start, on a thread of one set's.
TEST(NcclWatch, ADriverThatStartsSlowlyHoldsUpNobodyElse) {
  const Environment environment("FAKE_CUDA_INIT_MS", "1500");
  nccl::GpuOptions options;
  options.driver = std::string(HVD_FAKE_GPU_FOLDER) + "/libcuda.so.1";
  options.library = std::string(HVD_FAKE_GPU_FOLDER) + "/libnccl.so.2";
  nccl::GpuRuntime runtime(options);
  std::atomic<bool> loaded{false};
  std::thread loader([&] {
    std::shared_ptr<const nccl::GpuDriver> driver;
    std::shared_ptr<const nccl::NcclLibrary> library;
    EXPECT_TRUE(runtime.Load(&driver, &library).ok());
    loaded.store(true);
  });
  EXPECT_TRUE(Comes([] { return fake_gpu::test::HasCalled("cuInit"); }));
  runtime.AbortAll();
  EXPECT_FALSE(loaded.load());
  loader.join();
}

TEST(NcclWatch, ManySetsAreAbortedAtOnce) {
  World world(Medium::kInprocWindow, 2);
  const Environment environment("FAKE_NCCL_ABORT_MS", "300");
  RunRanks(2, [&](int r) {
    BareGpu gpu(&world, r, r);
    std::vector<Backend*> backends;
    for (uint32_t set = 1; set <= 5; ++set) backends.push_back(gpu.Join(set));
    const auto began = Clock::now();
    for (Backend* backend : backends) backend->Abort();
    const auto took = Clock::now() - began;
    EXPECT_TRUE(took >= milliseconds(300) && took < milliseconds(1500));
  });
}

// As with an NCCL that does not wait for the GPU when it frees memory. The result is copied.
TEST(NcclWatch, AfterAnAbortNothingIsWritten) {
  const Environment environment("FAKE_NCCL_VERSION", "21700");
  WithTwo(
      [&](BareGpu& gpu, Backend* backend, int rank) {
        BareGpu::Give(backend, gpu.Sum());
        if (rank == 1) return;
        gpu.Fill(0);  // what is left of the first one would be copied over it
        auto gate = std::make_unique<Gate>(gpu.stream());
        BareGpu::Give(backend, gpu.Sum());
        std::thread opener([&] {
          std::this_thread::sleep_for(milliseconds(150));
          gate->Open();
        });
        backend->Abort();
        const std::vector<float> after(gpu.data(), gpu.data() + BareGpu::kElements);
        std::this_thread::sleep_for(milliseconds(300));
        EXPECT_TRUE(std::vector<float>(gpu.data(), gpu.data() + BareGpu::kElements) == after);
        opener.join();
      },
      true);
}

// The program need not wait for the GPU before its set ends, and the other rank is late. Of tensors
// that travel together: those lie in memory that is registered.
TEST(NcclWatch, ASetThatEndsLeavesTheGpuWhatItStillNeeds) {
  const Environment environment;
  World world(Medium::kInprocWindow, 2);
  std::atomic<bool> left{false};
  std::atomic<bool> given{false};
  RunRanks(2, [&](int r) {
    BareGpu gpu(&world, r, r);
    Backend* const backend = gpu.Join(3);
    ASSERT_TRUE(backend != nullptr);
    if (r == 1) {
      EXPECT_TRUE(Comes([&] { return left.load(); }));
      std::this_thread::sleep_for(milliseconds(200));
    }
    CollectiveSpec spec = gpu.Sum();
    Piece& whole = spec.pieces.front();
    const int64_t half = whole.bytes / 2;
    const Piece second{whole.input + half, whole.output + half, half};
    whole.bytes = half;
    spec.pieces.push_back(second);
    spec.order.push_back(spec.order.front());
    BareGpu::Give(backend, std::move(spec));
    if (r == 0) gpu.Leave();
    left.store(true);
    EXPECT_TRUE(gpu.Read() == std::vector<float>(BareGpu::kElements, 2.0f));
    if (r == 1) given.store(true);
    EXPECT_TRUE(Comes([&] { return given.load(); }));  // the other still uses the host's backend
  });
}

}  // namespace
}  // namespace hvd::test
