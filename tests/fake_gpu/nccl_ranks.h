#pragma once

// Ranks as threads, each with a device, a stream and its end of one communicator.

#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "device.h"
#include "nccl/abi.h"

namespace fake_gpu::test {

inline Config MakeConfig(bool blocking) {
  return {sizeof(Config), kConfigMagic, 22703, blocking ? 1 : 0};
}

// Until the async error is no longer "in progress".
inline int AwaitState(void* comm) {
  for (;;) {
    int state = kSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), kSuccess);
    if (state != kInProgress) return state;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

struct TestRank {
  int rank;
  int nranks;
  void* stream;
  void* comm;
  bool blocking;

  // Of a call that may be in progress.
  void Done(int result) const {
    EXPECT_TRUE(result == kSuccess || (!blocking && result == kInProgress));
    EXPECT_EQ(AwaitState(comm), kSuccess);
  }
};

// kNothing: the body has ended the communicator.
enum class Ending { kDestroy, kAbort, kNothing };

inline void RunRank(const UniqueId& id, int rank, int nranks, bool blocking, Ending ending,
                    const std::function<void(const TestRank&)>& body) {
  const Device device(rank % 2);
  const TestStream stream;
  TestRank self{rank, nranks, stream, nullptr, blocking};
  Config config = MakeConfig(blocking);
  const int result = ncclCommInitRankConfig(&self.comm, nranks, id, rank, &config);
  ASSERT_EQ(result, blocking ? kSuccess : kInProgress);
  ASSERT_EQ(AwaitState(self.comm), kSuccess);
  body(self);
  if (ending == Ending::kAbort) EXPECT_EQ(ncclCommAbort(self.comm), kSuccess);
  if (ending != Ending::kDestroy) return;
  self.Done(ncclCommFinalize(self.comm));
  EXPECT_EQ(ncclCommDestroy(self.comm), kSuccess);
}

inline void WithRanks(int nranks, bool blocking, const std::function<void(const TestRank&)>& body,
                      Ending ending = Ending::kDestroy) {
  UniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), kSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] { RunRank(id, rank, nranks, blocking, ending, body); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(access(id.text, F_OK) != 0);  // nothing is left
}

}  // namespace fake_gpu::test
