#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace fake_gpu {

enum class Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

// Bytes of the largest scalar of a PreMulSum.
constexpr size_t kScaleBytes = 8;

// What all ranks of a collective must have in common, and the scalar and the time, which each may
// have its own of. It travels between processes, so it holds no address.
struct Operation {
  Kind kind;
  int32_t dtype;
  int32_t op;    // kFirstCreated stands for every created one
  int32_t root;  // of a send or recv: the peer
  uint64_t count;
  unsigned char scale[kScaleBytes];
  int64_t time_us;  // simulated, of the rank's stream

  bool IsPointToPoint() const { return kind == Kind::kSend || kind == Kind::kRecv; }
  bool IsReduction() const {
    return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  }
};

const char* NameOf(Kind kind);
const char* NameOfDtype(int dtype);
const char* NameOfOp(int op);
size_t BytesOf(int dtype);
std::string Describe(const Operation& operation);
bool AreAlike(const Operation& a, const Operation& b);  // all but the scalar and the time

// One call of a rank, until its stream has carried it out.
struct Call {
  Operation what;
  const std::byte* send;
  std::byte* recv;
  StreamPtr stream;
  std::vector<BlockPtr> read;
  std::vector<BlockPtr> written;
  bool fails;  // FAKE_NCCL_ASYNC_FAIL_AT
};

}  // namespace fake_gpu
