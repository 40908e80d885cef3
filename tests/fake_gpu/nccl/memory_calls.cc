// NCCL's functions for memory and for reduce ops of the program.

#include <cstring>
#include <string>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/record.h"
#include "cuda/stream.h"
#include "nccl/abi.h"
#include "nccl/arithmetic.h"
#include "nccl/group.h"

using namespace fake_gpu;

int ncclMemAlloc(void** address, size_t bytes) {
  int device;
  if (NeedDevice(&device) != 0) {
    return Fail(kUnhandledCuda, "ncclMemAlloc without a current context");
  }
  const BlockPtr block = bytes == 0 ? nullptr : Allocate(bytes, device, Origin::kNccl, true);
  Record("ncclMemAlloc", "memory", block ? block->Name() : "none", "bytes", bytes, "device",
         device);
  if (block == nullptr) return bytes == 0 ? kInvalidArgument : kUnhandledCuda;
  *address = block->base;
  return kSuccess;
}

int ncclMemFree(void* address) {
  int device;
  if (NeedDevice(&device) != 0) {
    return Fail(kUnhandledCuda, "ncclMemFree without a current context");
  }
  Record("ncclMemFree", "memory", NameOf(reinterpret_cast<uint64_t>(address)));
  std::string why;
  const BlockPtr block =
      CloseBlock(reinterpret_cast<uint64_t>(address), device, Origin::kNccl, &why);
  if (block == nullptr) return Fail(kInvalidArgument, "ncclMemFree: " + why);
  WaitForDevice(device);
  return Release(block, &why) ? kSuccess : Fail(kUnhandledCuda, "ncclMemFree: " + why);
}

int ncclRedOpCreatePreMulSum(int* op, void* scalar, int dtype, int residence, void* comm) {
  constexpr int kHostImmediate = 1;
  int result;
  const auto communicator = Ready("ncclRedOpCreatePreMulSum", comm, &result);
  if (communicator == nullptr) return result;
  if (residence != kHostImmediate || !HasDtype(dtype) || !CanReduce(dtype)) {
    return Fail(kInvalidArgument, "ncclRedOpCreatePreMulSum: only scalars of the host");
  }
  CreatedOp created{dtype, {}};
  std::memcpy(created.scale, scalar, BytesOf(dtype));
  *op = communicator->AddOp(created);
  Record("ncclRedOpCreatePreMulSum", "op", *op, "dtype", NameOfDtype(dtype), "comm",
         communicator->Name());
  return kSuccess;
}

int ncclRedOpDestroy(int op, void* comm) {
  int result;
  const auto communicator = Ready("ncclRedOpDestroy", comm, &result);
  if (communicator == nullptr) return result;
  Record("ncclRedOpDestroy", "op", op, "comm", communicator->Name());
  if (communicator->RemoveOp(op)) return kSuccess;
  return Fail(kInvalidArgument, "ncclRedOpDestroy of an op that the communicator does not have");
}
