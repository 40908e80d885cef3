// The collectives of the fake NCCL, against plain references.

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>

#include "nccl_ranks.h"

namespace fake_gpu::test {
namespace {

constexpr size_t kCounts[] = {0, 1, 7, 200001};  // the last takes several rounds

// Small integers, so that sums are exact in every type of four bytes or more.
template <typename T>
std::vector<T> Input(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>((i * 7 + rank * 13) % 50);
  return values;
}

template <typename T>
std::vector<T> SumOfInputs(int nranks, size_t count) {
  std::vector<T> sum(count);
  for (int rank = 0; rank < nranks; ++rank) {
    const std::vector<T> input = Input<T>(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + input[i]);
  }
  return sum;
}

template <typename T>
std::vector<T> Piece(const std::vector<T>& values, size_t at, size_t count) {
  return {values.begin() + at, values.begin() + at + count};
}

template <typename T>
void CheckReductions(const TestRank& self, Dtype dtype, size_t count) {
  const std::vector<T> sum = SumOfInputs<T>(self.nranks, count);
  const Buffer<T> input(Input<T>(self.rank, count));
  const Buffer<T> output(count);
  self.Done(ncclAllReduce(input.data(), output.data(), count, dtype, kSum, self.comm, self.stream));
  EXPECT_TRUE(output.Read(self.stream) == sum);

  const int root = self.nranks - 1;
  const Buffer<T> reduced(count);
  self.Done(
      ncclReduce(input.data(), reduced.data(), count, dtype, kSum, root, self.comm, self.stream));
  if (self.rank == root) EXPECT_TRUE(reduced.Read(self.stream) == sum);

  self.Done(ncclAllReduce(input.data(), input.data(), count, dtype, kSum, self.comm, self.stream));
  EXPECT_TRUE(input.Read(self.stream) == sum);
}

template <typename T>
void CheckReduceScatter(const TestRank& self, Dtype dtype, size_t count) {
  const size_t all = count * self.nranks;
  const std::vector<T> expected = Piece(SumOfInputs<T>(self.nranks, all), count * self.rank, count);
  const Buffer<T> input(Input<T>(self.rank, all));
  const Buffer<T> output(count);
  self.Done(
      ncclReduceScatter(input.data(), output.data(), count, dtype, kSum, self.comm, self.stream));
  EXPECT_TRUE(output.Read(self.stream) == expected);
  T* piece = static_cast<T*>(input.data()) + count * self.rank;
  self.Done(ncclReduceScatter(input.data(), piece, count, dtype, kSum, self.comm, self.stream));
  EXPECT_TRUE(Piece(input.Read(self.stream), count * self.rank, count) == expected);
}

template <typename T>
void CheckCopies(const TestRank& self, Dtype dtype, size_t count) {
  std::vector<T> all;
  for (int rank = 0; rank < self.nranks; ++rank) {
    for (const T value : Input<T>(rank, count)) all.push_back(value);
  }
  const Buffer<T> input(Input<T>(self.rank, count));
  const Buffer<T> gathered(all.size());
  self.Done(ncclAllGather(input.data(), gathered.data(), count, dtype, self.comm, self.stream));
  EXPECT_TRUE(gathered.Read(self.stream) == all);

  const int root = self.nranks / 2;
  const void* send = self.rank == root ? input.data() : nullptr;
  self.Done(ncclBroadcast(send, input.data(), count, dtype, root, self.comm, self.stream));
  EXPECT_TRUE(input.Read(self.stream) == Input<T>(root, count));
}

// Rank r sends (r + 1) * count elements to every rank, itself too.
template <typename T>
void CheckAlltoall(const TestRank& self, Dtype dtype, size_t count) {
  const size_t mine = (self.rank + 1) * count;
  const Buffer<T> input(Input<T>(self.rank, mine * self.nranks));
  const Buffer<T> output(count * self.nranks * (self.nranks + 1) / 2);
  std::vector<T> expected;
  EXPECT_EQ(ncclGroupStart(), kSuccess);
  for (int peer = 0; peer < self.nranks; ++peer) {
    const size_t theirs = (peer + 1) * count;
    EXPECT_EQ(ncclSend(static_cast<T*>(input.data()) + peer * mine, mine, dtype, peer, self.comm,
                       self.stream),
              kSuccess);
    EXPECT_EQ(ncclRecv(static_cast<T*>(output.data()) + expected.size(), theirs, dtype, peer,
                       self.comm, self.stream),
              kSuccess);
    const std::vector<T> sent = Input<T>(peer, theirs * self.nranks);
    for (const T value : Piece(sent, self.rank * theirs, theirs)) expected.push_back(value);
  }
  self.Done(ncclGroupEnd());
  EXPECT_TRUE(output.Read(self.stream) == expected);
}

template <typename T>
void CheckAll(const TestRank& self, Dtype dtype) {
  for (const size_t count : kCounts) {
    CheckReductions<T>(self, dtype, count);
    CheckReduceScatter<T>(self, dtype, count);
    CheckCopies<T>(self, dtype, count);
    CheckAlltoall<T>(self, dtype, count / 8);
  }
}

TEST(Collectives, AreRight) {
  const Environment environment("FAKE_GPU_DELAY_US", "300");
  for (const int nranks : {1, 2, 3, 4}) {
    WithRanks(nranks, nranks % 2 == 0, [](const TestRank& self) {
      CheckAll<float>(self, kFloat32);
      CheckAll<uint8_t>(self, kUint8);
      CheckReductions<int64_t>(self, kInt64, 100);
      CheckReductions<double>(self, kFloat64, 100);
    });
  }
  EXPECT_EQ(Leaks(), "");
}

// One allreduce of one value a rank.
template <typename T>
T ReduceOne(const TestRank& self, Dtype dtype, int op, T value) {
  const Buffer<T> buffer(std::vector<T>{value});
  self.Done(ncclAllReduce(buffer.data(), buffer.data(), 1, dtype, op, self.comm, self.stream));
  return buffer.Read(self.stream)[0];
}

TEST(Arithmetic, IsThatOfTheTypes) {
  const Environment environment;
  WithRanks(3, true, [](const TestRank& self) {
    const int value = self.rank - 2;  // -2, -1, 0
    EXPECT_EQ(int{ReduceOne<int8_t>(self, kInt8, kSum, 100)}, 300 - 256);
    EXPECT_EQ(int{ReduceOne<uint8_t>(self, kUint8, kProd, 7)}, 343 - 256);
    EXPECT_EQ(ReduceOne<int32_t>(self, kInt32, kMax, value), 0);
    EXPECT_EQ(ReduceOne<int32_t>(self, kInt32, kMin, value), -2);
    EXPECT_EQ(ReduceOne<int32_t>(self, kInt32, kAvg, value * 3 - 1), -4);
    EXPECT_EQ(ReduceOne<int32_t>(self, kInt32, kAvg, value * 2), -2);
    EXPECT_EQ(ReduceOne<int64_t>(self, kInt64, kAvg, 2 * value + 1), -1);
    EXPECT_EQ(ReduceOne<double>(self, kFloat64, kAvg, value), (-2 * (1.0 / 3)) - (1.0 / 3));
  });
}

// 1.0, -2.5, 65504, the smallest subnormal and zeros, as bits.
TEST(Arithmetic, OfHalves) {
  const Environment environment;
  WithRanks(2, true, [](const TestRank& self) {
    const bool zero = self.rank == 0;
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, zero ? 0x3c00 : 0xc100), 0xbe00);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, 0x7bff), 0x7c00);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, 0x0001), 0x0002);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, 0x0000), 0x0000);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, zero ? 0x3c00 : 0xbc00), 0x0000);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kBfloat16, kSum, 0x8000), 0x8000);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kAvg, zero ? 0x3c00 : 0xc100), 0xba00);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, zero ? 0x6800 : 0x3c00), 0x6800);  // a tie
    EXPECT_EQ(ReduceOne<uint16_t>(self, kFloat16, kSum, zero ? 0x7c00 : 0xfc00) & 0x7e00, 0x7e00);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kBfloat16, kSum, zero ? 0x3f80 : 0xc020), 0xbfc0);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kBfloat16, kSum, 0x7f7f), 0x7f80);
    EXPECT_EQ(ReduceOne<uint16_t>(self, kBfloat16, kMax, zero ? 0x3f80 : 0xc020), 0x3f80);
  });
}

// 1.0, -2.5, the largest numbers, at which sums stay, and infinity.
TEST(Arithmetic, OfFloatsOfEightBits) {
  const Environment environment;
  WithRanks(2, true, [](const TestRank& self) {
    const bool zero = self.rank == 0;
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e4m3, kSum, zero ? 0x38 : 0xc2), 0xbc);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e4m3, kSum, 0x7e), 0x7e);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e4m3, kSum, zero ? 0x7f : 0x38) & 0x7f, 0x7f);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e4m3, kSum, 0x01), 0x02);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e4m3, kMax, zero ? 0x38 : 0xc2), 0x38);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e5m2, kSum, zero ? 0x3c : 0xc1), 0xbe);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e5m2, kSum, 0x7b), 0x7b);
    EXPECT_EQ(ReduceOne<uint8_t>(self, kFloat8e5m2, kAvg, 0x3c), 0x3c);
  });
}

TEST(Arithmetic, OfCreatedOps) {
  const Environment environment;
  WithRanks(2, false, [](const TestRank& self) {
    float scalar = self.rank == 0 ? 0.5f : 2.0f;
    int op = 0;
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, kFloat32, 1, self.comm), kSuccess);
    EXPECT_TRUE(op >= kFirstCreated);
    EXPECT_EQ(ReduceOne<float>(self, kFloat32, op, 3.0f), 7.5f);
    EXPECT_EQ(ncclRedOpDestroy(op, self.comm), kSuccess);
  });
  EXPECT_EQ(Leaks(), "");
}

TEST(Group, HoldsSeveralCommunicatorsOfOneThread) {
  const Environment environment;
  UniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), kSuccess);
  const Device zero(0);
  const TestStream first;
  const Buffer<float> a(std::vector<float>{1});
  const Device one(1);
  const TestStream second;
  const Buffer<float> b(std::vector<float>{2});
  void* comms[2] = {};
  EXPECT_EQ(ncclGroupStart(), kSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, nullptr), kSuccess);
  const Buffer<float>* buffers[] = {&a, &b};
  void* streams[] = {first, second};
  {
    const Device again(0);
    EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, nullptr), kSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), kSuccess);
  EXPECT_EQ(ncclGroupStart(), kSuccess);
  for (int i : {0, 1}) {
    void* data = buffers[i]->data();
    EXPECT_EQ(ncclAllReduce(data, data, 1, kFloat32, kSum, comms[i], streams[i]), kSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), kSuccess);
  EXPECT_EQ(b.Read(second)[0], 3.0f);
  for (void* comm : comms) EXPECT_EQ(ncclCommDestroy(comm), kSuccess);
  const Device back(0);
  EXPECT_EQ(a.Read(first)[0], 3.0f);
}

constexpr const char* kIdOfParent = "FAKE_GPU_TEST_ID";

void ReduceAndGather(const TestRank& self) {
  CheckReductions<float>(self, kFloat32, 100000);
  CheckAlltoall<float>(self, kFloat32, 30000);
}

// The other process of the test below; by itself it does nothing.
TEST(Processes, Child) {
  const char* name = std::getenv(kIdOfParent);
  if (name == nullptr) return;
  UniqueId id{};
  std::strncpy(id.text, name, sizeof id.text - 1);
  RunRank(id, 1, 2, true, Ending::kDestroy, ReduceAndGather);
}

TEST(Processes, AreRanks) {
  if (std::getenv(kIdOfParent) != nullptr) return;
  const Environment environment;
  UniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), kSuccess);
  const pid_t child = fork();
  if (child == 0) {
    setenv(kIdOfParent, id.text, 1);
    execl("/proc/self/exe", "child", "Processes.Child", nullptr);
    _exit(127);
  }
  RunRank(id, 0, 2, false, Ending::kDestroy, ReduceAndGather);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(access(id.text, F_OK) != 0);
}

}  // namespace
}  // namespace fake_gpu::test
