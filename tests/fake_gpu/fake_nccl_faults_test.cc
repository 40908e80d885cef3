// What the fake NCCL refuses, and the faults that a test asks it for.

#include "nccl_ranks.h"

namespace fake_gpu::test {
namespace {

int Reduce(const TestRank& self, const Buffer<float>& buffer, size_t count = 1) {
  return ncclAllReduce(buffer.data(), buffer.data(), count, kFloat32, kSum, self.comm, self.stream);
}

void* NewComm(const UniqueId& id, int rank, int nranks, int result, bool blocking = false) {
  void* comm = nullptr;
  Config config = MakeConfig(blocking);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, nranks, id, rank, &config), result);
  return comm;
}

UniqueId NewId() {
  UniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), kSuccess);
  return id;
}

TEST(Abort, FreesAStreamThatIsStuck) {
  const Environment environment;
  WithRanks(
      2, true,
      [](const TestRank& self) {
        if (self.rank == 1) return static_cast<void>(ncclCommAbort(self.comm));  // never calls it
        const Buffer<float> buffer(1);
        EXPECT_EQ(Reduce(self, buffer), kSuccess);
        EXPECT_EQ(cuStreamQuery(self.stream), kCudaNotReady);
        std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          ncclCommAbort(self.comm);
        }).join();
        EXPECT_EQ(cuStreamSynchronize(self.stream), kCudaOk);
      },
      Ending::kNothing);
}

TEST(Abort, EndsAnInitThatNobodyJoins) {
  const Environment environment;
  const Device device;
  const UniqueId id = NewId();
  void* comm = NewComm(id, 0, 2, kInProgress);
  int state = kSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), kSuccess);
  EXPECT_EQ(state, kInProgress);
  EXPECT_EQ(ncclCommAbort(comm), kSuccess);
  EXPECT_TRUE(access(id.text, F_OK) != 0);
}

TEST(Init, HangsWhereToldTo) {
  const Environment environment("FAKE_NCCL_INIT_HANGS", "1");
  const Device device;
  const UniqueId id = NewId();
  void* comms[] = {NewComm(id, 0, 2, kInProgress), NewComm(id, 1, 2, kInProgress)};
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (void* comm : comms) {
    int state = kSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), kSuccess);
    EXPECT_EQ(state, kInProgress);
    EXPECT_EQ(ncclCommAbort(comm), kSuccess);
  }
}

TEST(Init, FailsWhereToldTo) {
  const Environment environment("FAKE_NCCL_INIT_FAILS", "0");
  const Device device;
  void* comm = NewComm(NewId(), 0, 1, kInProgress);
  EXPECT_EQ(AwaitState(comm), kSystem);
  EXPECT_TRUE(std::string(ncclGetLastError(comm)).find("INIT_FAILS") != std::string::npos);
  EXPECT_EQ(ncclCommAbort(comm), kSuccess);
  EXPECT_TRUE(NewComm(NewId(), 0, 1, kSystem, true) == nullptr);
}

TEST(Init, RefusesOneDeviceTwiceWhereToldTo) {
  const Environment environment("FAKE_NCCL_REFUSES_DUPLICATES", "1");
  const Device device;
  const UniqueId id = NewId();
  void* comms[] = {NewComm(id, 0, 2, kInProgress), NewComm(id, 1, 2, kInProgress)};
  for (void* comm : comms) {
    EXPECT_EQ(AwaitState(comm), kInvalidUsage);
    EXPECT_EQ(ncclCommAbort(comm), kSuccess);
  }
}

TEST(Init, ChecksItsArguments) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  void* comm = nullptr;
  const UniqueId id = NewId();
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, nullptr), kUnhandledCuda);  // no context
  const Device device;
  Config config = MakeConfig(true);
  config.magic = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), kInvalidArgument);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 1, nullptr), kInvalidArgument);
}

TEST(Calls, ThatDifferAreFound) {
  const Environment environment;
  WithRanks(
      2, true,
      [](const TestRank& self) {
        const Buffer<float> buffer(2);
        EXPECT_EQ(Reduce(self, buffer, self.rank + 1), kSuccess);
        EXPECT_EQ(cuStreamSynchronize(self.stream), kCudaOk);
        EXPECT_EQ(AwaitState(self.comm), kInvalidUsage);
        EXPECT_EQ(Reduce(self, buffer), kInvalidUsage);
        const std::string why = ncclGetLastError(self.comm);
        EXPECT_TRUE(why.find("ncclAllReduce of 2 float32, sum") != std::string::npos);
      },
      Ending::kAbort);
  EXPECT_EQ(Leaks(), "");
}

TEST(Calls, FailWhereToldTo) {
  const Environment environment("FAKE_NCCL_FAIL_AT", "2:1");
  WithRanks(
      2, true,
      [](const TestRank& self) {
        const Buffer<float> buffer(1);
        EXPECT_EQ(Reduce(self, buffer), kSuccess);
        EXPECT_EQ(Reduce(self, buffer), self.rank == 1 ? kUnhandledCuda : kSuccess);
        EXPECT_EQ(ncclCommAbort(self.comm), kSuccess);
        EXPECT_EQ(cuStreamSynchronize(self.stream), kCudaOk);  // which has perhaps written to it
      },
      Ending::kNothing);
}

TEST(Calls, FailLaterWhereToldTo) {
  const Environment environment("FAKE_NCCL_ASYNC_FAIL_AT", "1");
  WithRanks(
      1, true,
      [](const TestRank& self) {
        const Buffer<float> buffer(1);
        EXPECT_EQ(Reduce(self, buffer), kSuccess);
        int state = kSuccess;
        while (state == kSuccess) ncclCommGetAsyncError(self.comm, &state);
        EXPECT_EQ(state, kRemote);
        EXPECT_EQ(cuStreamQuery(self.stream), kCudaNotReady);
        EXPECT_EQ(ncclCommAbort(self.comm), kSuccess);
        EXPECT_EQ(cuStreamSynchronize(self.stream), kCudaOk);  // which has perhaps written to it
      },
      Ending::kNothing);
}

// The first call of a communicator that does not block is on its stream only later: an event that
// is recorded before would miss it.
TEST(Calls, ThatOvertakeOneInProgressAreFound) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  WithRanks(1, false, [](const TestRank& self) {
    const Buffer<float> buffer(1);
    const TestEvent event;
    EXPECT_EQ(Reduce(self, buffer), kInProgress);
    EXPECT_EQ(cuEventRecord(event, self.stream), kCudaInvalidValue);
    EXPECT_EQ(Reduce(self, buffer), kInvalidUsage);
    EXPECT_EQ(AwaitState(self.comm), kSuccess);
    EXPECT_EQ(cuEventRecord(event, self.stream), kCudaOk);
    EXPECT_EQ(Reduce(self, buffer), kSuccess);
    EXPECT_EQ(cuStreamSynchronize(self.stream), kCudaOk);
  });
}

TEST(Calls, NeedLiveMemoryAndALiveCommunicator) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  void* gone = nullptr;
  WithRanks(1, true, [&](const TestRank& self) {
    float host[2] = {};
    const Buffer<float> buffer(2);
    const auto all_reduce = [&](void* send, void* recv, size_t count) {
      return ncclAllReduce(send, recv, count, kFloat32, kSum, self.comm, self.stream);
    };
    EXPECT_EQ(all_reduce(host, buffer.data(), 1), kInvalidArgument);
    EXPECT_EQ(all_reduce(buffer.data(), buffer.data(), 3), kInvalidArgument);
    EXPECT_EQ(all_reduce(buffer.data(), static_cast<char*>(buffer.data()) + 2, 1),
              kInvalidArgument);
    gone = self.comm;
  });
  int state = 0;
  EXPECT_EQ(ncclCommGetAsyncError(gone, &state), kInvalidArgument);
  EXPECT_TRUE(HasCalled("of a communicator that was destroyed or aborted"));
}

TEST(Registrations, AreKept) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  WithRanks(1, true, [](const TestRank& self) {
    void* memory = nullptr;
    void* handle = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 4096), kSuccess);
    EXPECT_EQ(ncclCommRegister(self.comm, memory, 4096, &handle), kSuccess);
    EXPECT_TRUE(Leaks().find("registration") != std::string::npos);
    EXPECT_EQ(ncclMemFree(memory), kInvalidArgument);
    EXPECT_EQ(ncclCommDeregister(self.comm, handle), kSuccess);
    EXPECT_EQ(ncclMemFree(memory), kSuccess);
  });
  EXPECT_EQ(Leaks(), "");
}

TEST(Version, IsWhatTheEnvironmentSays) {
  const Environment environment("FAKE_NCCL_VERSION", "21903");
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), kSuccess);
  EXPECT_EQ(version, 21903);
}

}  // namespace
}  // namespace fake_gpu::test
