// The backend of GPUs where things go wrong, and what it asks of the driver and of NCCL.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "backend/nccl/reduction.h"
#include "check.h"
#include "device.h"
#include "ranks.h"

namespace hvd::test {
namespace {

using fake_gpu::test::Environment;
using Clock = std::chrono::steady_clock;
using Numbers = std::vector<float>;

// Small enough that it is exact.
CollectiveSpec Allreduce(std::vector<Numbers>* tensors, uint64_t sequence = 1) {
  CollectiveSpec spec;
  spec.sequence = sequence;
  for (Numbers& tensor : *tensors) {
    auto* const data = reinterpret_cast<std::byte*>(tensor.data());
    spec.pieces.push_back({data, data, static_cast<int64_t>(tensor.size() * sizeof(float))});
  }
  return spec;
}

// How many calls there were of a function, with an argument.
size_t Lines(const std::string& name, const std::string& argument) {
  std::istringstream calls{std::string(fake_gpu_calls())};
  size_t count = 0;
  for (std::string line; std::getline(calls, line);) {
    const bool wanted = line.rfind(name + " ", 0) == 0 && line.find(argument) != std::string::npos;
    count += wanted ? 1 : 0;
  }
  return count;
}
size_t Calls(const std::string& name) { return Lines(name, ""); }

// Two ranks, each of which does `body` with its backend of a set of both.
void WithTwo(const std::function<void(Rank&, Backend*)>& body) {
  World world(Medium::kNccl, 2);
  RunRanks(2, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    body(rank, backend);
  });
}

// What two ranks fail with that reduce one tensor, by rank; empty: they do not.
std::vector<std::string> FailTogether() {
  std::vector<std::string> messages(2);
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    messages[static_cast<size_t>(rank.rank())] = rank.Run(backend, Allreduce(&tensors)).message();
    backend->Abort();
  });
  return messages;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Nccl, TensorsTravelTogetherInOneRegisteredBuffer) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f), Numbers(3, 2.0f), Numbers(7, 4.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
    for (const float value : tensors[1]) EXPECT_EQ(value, 4.0f);
  });
  EXPECT_EQ(Calls("ncclAllReduce"), size_t{2});
  EXPECT_EQ(Calls("ncclCommRegister"), size_t{2});
}

TEST(Nccl, ATensorAloneIsReducedWhereItLies) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
  });
  EXPECT_EQ(Calls("cuMemcpyDtoDAsync"), size_t{4});  // the test's own, to the GPU and back
}

// What the GPUs still hold after a while.
std::string LeftOnTheGpus() {
  std::string leaks;
  for (int i = 0; i < 500; ++i) {
    leaks = fake_gpu::test::Leaks();
    if (!Has(leaks, "comm") && !Has(leaks, "stream") && !Has(leaks, "memory")) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return leaks;
}

TEST(Nccl, NothingIsLeftOnTheGpu) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f), Numbers(3, 2.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
  });
  EXPECT_EQ(LeftOnTheGpus(), std::string());
}

// The tensors need more than the buffer of the communicator, and one rank does not come.
TEST(Nccl, NothingIsLeftOnTheGpuByACollectiveThatIsAborted) {
  const Environment environment;
  std::atomic<bool> aborted{false};
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
    if (rank.rank() == 1) {
      while (!aborted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::vector<Numbers> large(2, Numbers(3 << 20, 1.0f));
    const std::unique_ptr<StepMachine> machine = backend->Start(Allreduce(&large, 2));
    while (Calls("ncclAllReduce") < 3) EXPECT_TRUE(machine->Advance() != Step::kDone);
    backend->Abort();
    aborted.store(true);
  });
  EXPECT_EQ(LeftOnTheGpus(), std::string());
}

// More than the buffer of the communicator holds.
TEST(Nccl, MemoryOfManyTensorsIsKeptForTheNextTime) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    for (uint64_t step = 1; step <= 3; ++step) {
      std::vector<Numbers> tensors(2, Numbers((3 << 20) + step, 1.0f));
      ASSERT_OK(rank.Run(backend, Allreduce(&tensors, step)));
      EXPECT_EQ(tensors[1].back(), 2.0f);
    }
  });
  EXPECT_EQ(Lines("cuMemAllocAsync", "bytes=33554432"), size_t{2});
}

TEST(Nccl, BetweenGpusThatDoNotReachEachOtherThePeerCopies) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors(4, Numbers(10, 1.0f));  // the last one is on the other GPU
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
    EXPECT_EQ(tensors[3][9], 2.0f);
  });
  EXPECT_EQ(Calls("cuMemcpyPeerAsync"), size_t{4});
}

TEST(Nccl, AResultIsAllocatedOnTheGpuOfItsTensor) {
  const Environment environment;
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
    for (const int device : {rank.rank(), 1 - rank.rank()}) {
      for (const int64_t bytes : {64, 0}) {
        DeviceOrder order;
        order.device = device;
        std::shared_ptr<std::byte> memory;
        ASSERT_OK(backend->Allocate(order, bytes, &memory));
        EXPECT_TRUE(memory != nullptr);
      }
    }
  });
}

TEST(Nccl, ADriverThatDoesNotStartIsToldToAll) {
  const Environment environment("FAKE_NCCL_VERSION", "21304");
  for (const std::string& message : FailTogether()) {
    EXPECT_TRUE(Has(message, "rank 0 cannot use NCCL") && Has(message, "too old"));
  }
}

TEST(Nccl, ACommunicatorThatCannotBeSetUpIsAnError) {
  const Environment environment("FAKE_NCCL_INIT_FAILS", "all");
  for (const std::string& message : FailTogether()) {
    EXPECT_TRUE(Has(message, "NCCL failed during setting up a communicator"));
  }
}

// Only one rank's call fails; the other's waits on the GPU until it is aborted.
TEST(Nccl, ACallThatFailsIsAnErrorThatComesAfterTheWatchers) {
  const Environment environment("FAKE_NCCL_FAIL_AT", "1:0");
  const auto began = Clock::now();
  std::atomic<bool> failed{false};
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    const std::unique_ptr<StepMachine> machine = backend->Start(Allreduce(&tensors));
    Step step = Step::kBlocked;
    while (step != Step::kFailed && !failed.load()) {
      step = machine->Advance();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (step == Step::kFailed) {
      EXPECT_EQ(rank.rank(), 0);
      EXPECT_TRUE(Has(machine->status().message(), "NCCL failed during allreduce on GPU"));
      EXPECT_TRUE(Clock::now() - began >= std::chrono::seconds(1));
    }
    failed.store(true);
    backend->Abort();
  });
}

TEST(Nccl, ACallOfANetworkThatFailsIsNeverDone) {
  const Environment environment("FAKE_NCCL_ASYNC_FAIL_AT", "1");
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    const std::unique_ptr<StepMachine> first = backend->Start(Allreduce(&tensors));
    const auto until = Clock::now() + std::chrono::milliseconds(300);
    while (Clock::now() < until) EXPECT_TRUE(first->Advance() != Step::kDone);
    (void)rank;
    backend->Abort();
  });
}

TEST(Nccl, SettingUpThatNeverEndsHoldsUpNoOtherSetAndIsAborted) {
  const Environment environment("FAKE_NCCL_INIT_HANGS", "all");
  World world(Medium::kNccl, 2);
  RunRanks(2, [&](int r) {
    Rank rank(&world, r);
    Backend* hangs = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &hangs));
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    const std::unique_ptr<StepMachine> machine = hangs->Start(Allreduce(&tensors));
    const auto until = Clock::now() + std::chrono::milliseconds(300);
    while (Clock::now() < until) {
      EXPECT_TRUE(machine->Advance() != Step::kFailed);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto began = Clock::now();
    hangs->Abort();
    EXPECT_TRUE(Clock::now() - began < std::chrono::seconds(10));  // else for ever
  });
}

// The other rank does not come, as one that has died: the GPU would wait for ever.
TEST(Nccl, AnAbortFreesTheStreamsThatWait) {
  const Environment environment;
  std::atomic<bool> freed{false};
  WithTwo([&](Rank& rank, Backend* backend) {
    std::vector<Numbers> tensors{Numbers(10, 1.0f)};
    ASSERT_OK(rank.Run(backend, Allreduce(&tensors)));
    if (rank.rank() == 1) {
      while (!freed.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const std::unique_ptr<StepMachine> machine = backend->Start(Allreduce(&tensors, 2));
    const auto until = Clock::now() + std::chrono::milliseconds(300);
    while (Clock::now() < until) EXPECT_TRUE(machine->Advance() != Step::kDone);
    backend->Abort();
    Step step = Step::kBlocked;
    const auto limit = Clock::now() + std::chrono::seconds(10);
    while (step != Step::kDone && Clock::now() < limit) step = machine->Advance();
    EXPECT_TRUE(step == Step::kDone);
    freed.store(true);
  });
}

TEST(Nccl, WhatItCarriesDependsOnNothingOfOneRanks) {
  using nccl::Carries;
  EXPECT_TRUE(Carries(OpKind::kAllreduce, DataType::kBfloat16, ReduceOp::kAverage, 1.0, 1.0));
  EXPECT_TRUE(Carries(OpKind::kAllreduce, DataType::kFloat16, ReduceOp::kSum, 0.5, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kFloat16, ReduceOp::kSum, 1.0 / 3, 1.0));
  EXPECT_TRUE(Carries(OpKind::kAllreduce, DataType::kFloat32, ReduceOp::kSum, 1.0 / 3, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kInt32, ReduceOp::kSum, 2.0, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kInt16, ReduceOp::kSum, 1.0, 1.0));
  EXPECT_TRUE(Carries(OpKind::kAllgather, DataType::kInt16, ReduceOp::kSum, 1.0, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kFloat32, ReduceOp::kAdasum, 1.0, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kFloat32, ReduceOp::kMax, 2.0, 1.0));
  EXPECT_TRUE(Carries(OpKind::kAllreduce, DataType::kFloat8E5m2, ReduceOp::kSum, 0.5, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kFloat8E5m2, ReduceOp::kSum, 9.0, 1.0));
  EXPECT_TRUE(Carries(OpKind::kAllreduce, DataType::kFloat8E4m3fn, ReduceOp::kSum, 9.0, 1.0));
  EXPECT_FALSE(Carries(OpKind::kAllreduce, DataType::kFloat8E4m3fn, ReduceOp::kAverage, 1.0, 1.0));
}

}  // namespace
}  // namespace hvd::test
