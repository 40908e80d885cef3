// NCCL's functions that put work on a stream, and groups of them.

#include <cstring>
#include <sstream>
#include <string>

#include "cuda/record.h"
#include "cuda/settings.h"
#include "nccl/abi.h"
#include "nccl/arithmetic.h"
#include "nccl/group.h"

namespace fake_gpu {
namespace {

struct Arguments {
  Kind kind;
  const void* send;
  void* recv;
  uint64_t count;
  int dtype;
  int op = kSum;
  int root = -1;
};

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// How many elements this rank reads and writes.
struct Extent {
  uint64_t send;
  uint64_t recv;
};

Extent ExtentOf(const Arguments& a, const Communicator& communicator) {
  const uint64_t all = a.count * communicator.nranks();
  const bool is_root = a.root == communicator.rank();
  switch (a.kind) {
    case Kind::kBroadcast:
      return {is_root ? a.count : 0, a.count};
    case Kind::kReduce:
      return {a.count, is_root ? a.count : 0};
    case Kind::kAllGather:
      return {a.count, all};
    case Kind::kReduceScatter:
      return {all, a.count};
    case Kind::kSend:
      return {a.count, 0};
    case Kind::kRecv:
      return {0, a.count};
    default:
      return {a.count, a.count};
  }
}

// One call on its way from its arguments to its stream.
class Caller {
 public:
  Caller(const Arguments& a, CommunicatorPtr communicator)
      : a_(a), communicator_(std::move(communicator)), call_{} {
    call_.what = {a.kind, a.dtype, std::min<int>(a.op, kFirstCreated), a.root, a.count, {}, 0};
    call_.send = static_cast<const std::byte*>(a.send);
    call_.recv = static_cast<std::byte*>(a.recv);
  }

  int Add(void* stream) {
    call_.stream = FindStream(stream, communicator_->device());
    Write();
    if (Hits(TheSettings().nccl_fail, "fails")) return kUnhandledCuda;
    call_.fails = Hits(TheSettings().nccl_async_fail, "fails later");
    std::string why = WhyNot();
    if (why.empty()) why = AddMemory();
    if (!why.empty()) return Fail(kInvalidArgument, NameOf(a_.kind) + (": " + why));
    AddToGroup(communicator_, call_);
    return kSuccess;
  }

 private:
  void Write() const {
    std::ostringstream line;
    line << NameOf(a_.kind);
    Append(&line, "comm", communicator_->Name(), "rank", communicator_->rank(), "count", a_.count,
           "dtype", NameOfDtype(a_.dtype));
    if (call_.what.IsReduction()) Append(&line, "op", NameOfOp(a_.op));
    if (a_.root >= 0) Append(&line, call_.what.IsPointToPoint() ? "peer" : "root", a_.root);
    if (a_.kind != Kind::kRecv) Append(&line, "send", NameOf(AddressOf(a_.send)));
    if (a_.kind != Kind::kSend) Append(&line, "recv", NameOf(AddressOf(a_.recv)));
    Append(&line, "stream", call_.stream ? call_.stream->Name() : "none");
    Record(line.str());
  }

  bool Hits(const Fault& fault, const std::string& counter) const {
    if (fault.at == 0) return false;
    if (fault.rank >= 0 && fault.rank != communicator_->rank()) return false;
    return CountCall(counter) == fault.at;
  }

  // Empty, or why the arguments are no valid call; sets the scalar of the op.
  std::string WhyNot() {
    if (!HasDtype(a_.dtype)) return "no such dtype";
    if (a_.root < -1 || a_.root >= communicator_->nranks()) return "no such root or peer";
    if (call_.what.IsReduction() && !CanReduce(a_.dtype))
      return "floats of 8 bits are reduced from compute capability 9.0 on";
    if (call_.stream == nullptr) return "the stream was destroyed";
    if (call_.stream->device() != communicator_->device()) return "the stream is of another device";
    if (call_.stream->IsHeld()) return "the call overtakes one that is in progress on its stream";
    return call_.what.IsReduction() ? WhyNoOp() : "";
  }

  std::string WhyNoOp() {
    if (a_.op == kAvg) ScaleOfAverage(a_.dtype, communicator_->nranks(), call_.what.scale);
    if (a_.op >= 0 && a_.op < kFirstCreated) return "";
    CreatedOp created;
    if (!communicator_->FindOp(a_.op, &created)) return "no such op in this communicator";
    if (created.dtype != a_.dtype) return "the op was created for another dtype";
    std::memcpy(call_.what.scale, created.scale, sizeof created.scale);
    return "";
  }

  std::string AddMemory() {
    const Extent extent = ExtentOf(a_, *communicator_);
    const uint64_t send_bytes = extent.send * BytesOf(a_.dtype);
    const uint64_t recv_bytes = extent.recv * BytesOf(a_.dtype);
    std::string why;
    AddMemory(a_.send, send_bytes, &call_.read, &why);
    AddMemory(a_.recv, recv_bytes, &call_.written, &why);
    if (!why.empty()) return why;
    const uint64_t send = AddressOf(a_.send);
    const uint64_t recv = AddressOf(a_.recv);
    const bool overlap = send < recv + recv_bytes && recv < send + send_bytes;
    return overlap && !IsInPlace() ? "send and recv overlap, and not as in place" : "";
  }

  void AddMemory(const void* pointer, uint64_t bytes, std::vector<BlockPtr>* blocks,
                 std::string* why) const {
    if (bytes == 0 || !why->empty()) return;
    const BlockPtr block = FindBlock(AddressOf(pointer), bytes, communicator_->device(), why);
    if (block != nullptr) blocks->push_back(block);
  }

  bool IsInPlace() const {
    const uint64_t mine = a_.count * BytesOf(a_.dtype) * communicator_->rank();
    const uint64_t send = AddressOf(a_.send);
    const uint64_t recv = AddressOf(a_.recv);
    if (a_.kind == Kind::kAllGather) return send == recv + mine;
    if (a_.kind == Kind::kReduceScatter) return recv == send + mine;
    return send == recv;
  }

  const Arguments a_;
  const CommunicatorPtr communicator_;
  Call call_;
};

int CallNccl(const Arguments& arguments, void* comm, void* stream) {
  int result;
  const CommunicatorPtr communicator = Ready(NameOf(arguments.kind), comm, &result);
  if (communicator == nullptr) return FailGroup(result);
  StartGroup();
  result = FailGroup(Caller(arguments, communicator).Add(stream));
  const int end = EndGroup();
  return result == kSuccess ? end : result;
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;

int ncclGroupStart() {
  Record("ncclGroupStart");
  StartGroup();
  return kSuccess;
}

int ncclGroupEnd() {
  Record("ncclGroupEnd");
  if (!IsInGroup()) return Fail(kInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return EndGroup();
}

int ncclAllReduce(const void* send, void* recv, size_t count, int dtype, int op, void* comm,
                  void* stream) {
  return CallNccl({Kind::kAllReduce, send, recv, count, dtype, op}, comm, stream);
}

int ncclBroadcast(const void* send, void* recv, size_t count, int dtype, int root, void* comm,
                  void* stream) {
  return CallNccl({Kind::kBroadcast, send, recv, count, dtype, kSum, root}, comm, stream);
}

int ncclReduce(const void* send, void* recv, size_t count, int dtype, int op, int root, void* comm,
               void* stream) {
  return CallNccl({Kind::kReduce, send, recv, count, dtype, op, root}, comm, stream);
}

int ncclAllGather(const void* send, void* recv, size_t count, int dtype, void* comm, void* stream) {
  return CallNccl({Kind::kAllGather, send, recv, count, dtype}, comm, stream);
}

int ncclReduceScatter(const void* send, void* recv, size_t count, int dtype, int op, void* comm,
                      void* stream) {
  return CallNccl({Kind::kReduceScatter, send, recv, count, dtype, op}, comm, stream);
}

int ncclSend(const void* send, size_t count, int dtype, int peer, void* comm, void* stream) {
  return CallNccl({Kind::kSend, send, nullptr, count, dtype, kSum, peer}, comm, stream);
}

int ncclRecv(void* recv, size_t count, int dtype, int peer, void* comm, void* stream) {
  return CallNccl({Kind::kRecv, nullptr, recv, count, dtype, kSum, peer}, comm, stream);
}
