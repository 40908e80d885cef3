// What a program does while the GPU is at work for a collective, and who waits for its end.

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "backend/bare_gpu.h"

namespace hvd::test {
namespace {

using fake_gpu::test::Environment;
using fake_gpu::test::Gate;

// What its stream is given after an allreduce was started, the backward pass of the next layers,
// runs while that waits for another rank's GPU.
TEST(NcclOverlap, TheWorkOfTheProgramGoesOnMeanwhile) {
  const Environment environment;
  std::atomic<bool> went_on{false};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    std::unique_ptr<Gate> late;
    if (rank == 1) late = std::make_unique<Gate>(gpu.stream());
    const auto end = BareGpu::Begin(backend, gpu.Sum());
    if (rank == 0) {
      EXPECT_EQ(cuStreamSynchronize(gpu.stream()), 0);
      EXPECT_FALSE(end->HasCome());
      went_on.store(true);
    }
    EXPECT_TRUE(Comes([&] { return went_on.load(); }));
    late.reset();
    ASSERT_OK(end->HaveWait(rank, gpu.stream()));
    EXPECT_TRUE(gpu.Read() == std::vector<float>(BareGpu::kElements, 2.0f));
    EXPECT_TRUE(end->HasCome());
  });
}

// Ten layers of 1 ms, each followed by an allreduce of 1 ms.
TEST(NcclOverlap, TheTimeOfAStepIsThatOfItsComputationAndOneAllreduce) {
  const Environment environment("FAKE_NCCL_US", "1000");
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    std::vector<std::shared_ptr<const DeviceEnd>> ends;
    for (int layer = 0; layer < 10; ++layer) {
      fake_gpu_compute(gpu.stream(), 1000);
      ends.push_back(BareGpu::Begin(backend, gpu.Gradient(layer)));
    }
    for (const auto& end : ends) ASSERT_OK(end->HaveWait(rank, gpu.stream()));
    EXPECT_EQ(fake_gpu_time(gpu.stream()), 11'000);
  });
}

// Its end may live longer than all that it is of.
TEST(NcclOverlap, WhatIsAbortedBeforeItsEndHasNoResult) {
  const Environment environment;
  std::shared_ptr<const DeviceEnd> done;
  std::shared_ptr<const DeviceEnd> never;
  {
    std::atomic<bool> aborted{false};
    WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
      auto first = BareGpu::Begin(backend, gpu.Sum());
      EXPECT_TRUE(Comes([&] { return first->HasCome(); }));
      if (rank == 0) {
        done = std::move(first);
        never = BareGpu::Begin(backend, gpu.Sum());
        backend->Abort();
        aborted.store(true);
      }
      EXPECT_TRUE(Comes([&] { return aborted.load(); }));
    });
  }
  EXPECT_FALSE(done->lost());
  EXPECT_TRUE(never->lost());
  EXPECT_TRUE(done->HasCome() && never->HasCome());
}

TEST(NcclOverlap, AStreamThatRecordsAGraphWaitsForNothingThatTheGpuHasToDoYet) {
  const Environment environment;
  std::atomic<bool> refused{false};
  WithTwo([&](BareGpu& gpu, Backend* backend, int rank) {
    std::unique_ptr<Gate> late;
    if (rank == 1) late = std::make_unique<Gate>(gpu.stream());
    const auto end = BareGpu::Begin(backend, gpu.Sum());
    fake_gpu_capture_stream(gpu.stream(), 1);
    if (rank == 0) {
      const Status status = end->HaveWait(rank, gpu.stream());
      EXPECT_TRUE(status.code() == Code::kTimeout && Has(status.message(), "captures a graph"));
      refused.store(true);
    }
    EXPECT_TRUE(Comes([&] { return refused.load(); }));
    late.reset();
    EXPECT_TRUE(Comes([&] { return end->HasCome(); }));
    ASSERT_OK(end->HaveWait(rank, gpu.stream()));  // the graph needs nothing of it
    fake_gpu_capture_stream(gpu.stream(), 0);
    EXPECT_TRUE(gpu.Read() == std::vector<float>(BareGpu::kElements, 2.0f));
  });
}

}  // namespace
}  // namespace hvd::test
