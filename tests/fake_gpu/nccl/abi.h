#pragma once

// The functions of NCCL that the fake has, and the numbers of its enums.

#include <cstddef>

namespace fake_gpu {

enum NcclResult {
  kSuccess = 0,
  kUnhandledCuda = 1,
  kSystem = 2,
  kInternal = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemote = 6,
  kInProgress = 7,
};

enum Dtype {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2,
  kDtypes,
};

// From kFirstCreated on: ops of ncclRedOpCreatePreMulSum.
enum ReduceOp { kSum, kProd, kMax, kMin, kAvg, kFirstCreated };

struct UniqueId {
  char text[128];
};

// The members that programs of every version have; newer ones have more.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
constexpr unsigned kConfigMagic = 0xcafebeef;

}  // namespace fake_gpu

extern "C" {

int ncclGetVersion(int* version);
int ncclGetUniqueId(fake_gpu::UniqueId* id);
const char* ncclGetErrorString(int result);
const char* ncclGetLastError(void* comm);

int ncclCommInitRankConfig(void** comm, int nranks, fake_gpu::UniqueId id, int rank,
                           fake_gpu::Config* config);
int ncclCommGetAsyncError(void* comm, int* result);
int ncclCommFinalize(void* comm);
int ncclCommDestroy(void* comm);
int ncclCommAbort(void* comm);
int ncclCommCount(void* comm, int* count);
int ncclCommUserRank(void* comm, int* rank);
int ncclCommRegister(void* comm, void* address, size_t bytes, void** handle);
int ncclCommDeregister(void* comm, void* handle);
int ncclMemAlloc(void** address, size_t bytes);
int ncclMemFree(void* address);
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int dtype, int residence, void* comm);
int ncclRedOpDestroy(int op, void* comm);

int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void* send, void* recv, size_t count, int dtype, int op, void* comm,
                  void* stream);
int ncclBroadcast(const void* send, void* recv, size_t count, int dtype, int root, void* comm,
                  void* stream);
int ncclReduce(const void* send, void* recv, size_t count, int dtype, int op, int root, void* comm,
               void* stream);
int ncclAllGather(const void* send, void* recv, size_t count, int dtype, void* comm, void* stream);
int ncclReduceScatter(const void* send, void* recv, size_t count, int dtype, int op, void* comm,
                      void* stream);
int ncclSend(const void* send, size_t count, int dtype, int peer, void* comm, void* stream);
int ncclRecv(void* recv, size_t count, int dtype, int peer, void* comm, void* stream);

}  // extern "C"
