#include "nccl/operation.h"

#include "nccl/abi.h"

namespace fake_gpu {

const char* NameOf(Kind kind) {
  static const char* const names[] = {"ncclAllReduce", "ncclBroadcast",     "ncclReduce",
                                      "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                      "ncclRecv"};
  return names[static_cast<int>(kind)];
}

const char* NameOfDtype(int dtype) {
  static const char* const names[] = {"int8",    "uint8",    "int32",      "uint32",
                                      "int64",   "uint64",   "float16",    "float32",
                                      "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return dtype >= 0 && dtype < kDtypes ? names[dtype] : "unknown";
}

const char* NameOfOp(int op) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < kFirstCreated ? names[op] : "premulsum";
}

size_t BytesOf(int dtype) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[dtype];
}

std::string Describe(const Operation& operation) {
  std::string text = std::string(NameOf(operation.kind)) + " of " +
                     std::to_string(operation.count) + " " + NameOfDtype(operation.dtype);
  if (operation.IsReduction()) text += std::string(", ") + NameOfOp(operation.op);
  if (operation.root >= 0) text += ", root " + std::to_string(operation.root);
  return text;
}

bool AreAlike(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.count == b.count;
}

}  // namespace fake_gpu
