#include "backend/nccl/calls.h"

#include <algorithm>

#include "backend/nccl/reduction.h"

namespace hvd::nccl {

namespace {

// The calls of one group. After one has failed no more are made.
class Group {
 public:
  Group(const CollectiveSpec& spec, int op, int rank, int size, const Communicator& communicator)
      : call_(communicator.nccl()),
        comm_(communicator.handle()),
        stream_(communicator.stream()),
        type_(TypeOf(spec.reduction.dtype)),
        element_(static_cast<int64_t>(SizeOf(spec.reduction.dtype))),
        op_(op),
        root_(spec.root.value()),
        rank_(rank),
        size_(size) {}

  void Add(OpKind kind, const Part& part) {
    switch (kind) {
      case OpKind::kAllreduce:
        return Allreduce(part);
      case OpKind::kBroadcast:
        return Broadcast(part.input, part.output, part.bytes, root_);
      case OpKind::kAllgather:
        return Allgather(part);
      case OpKind::kReducescatter:
        return Reducescatter(part);
      case OpKind::kAlltoall:
        return Alltoall(part);
      case OpKind::kBarrier:
      case OpKind::kJoin:
        return;
    }
  }

  int Run(OpKind kind, const std::vector<Part>& parts) {
    Keep(call_.group_start());
    if (result_ != kSuccess) return result_;
    for (const Part& part : parts) Add(kind, part);
    const int end = call_.group_end();
    return result_ == kSuccess ? end : result_;
  }

 private:
  void Keep(int result) {
    if (result_ == kSuccess && result != kInProgress) result_ = result;
  }
  bool Skips(int64_t bytes) const { return result_ != kSuccess || bytes == 0; }
  static bool AllEqual(const std::vector<int64_t>& bytes) {
    return std::adjacent_find(bytes.begin(), bytes.end(), std::not_equal_to<>()) == bytes.end();
  }
  size_t Elements(int64_t bytes) const { return static_cast<size_t>(bytes / element_); }

  void Allreduce(const Part& part) {
    if (Skips(part.bytes)) return;
    Keep(call_.all_reduce(part.input, part.output, Elements(part.bytes), type_, op_, comm_,
                          stream_));
  }

  void Broadcast(const std::byte* input, std::byte* output, int64_t bytes, int root) {
    if (Skips(bytes)) return;
    Keep(call_.broadcast(input, output, static_cast<size_t>(bytes), kUint8, root, comm_, stream_));
  }

  // NCCL gathers equal parts only; of others each rank broadcasts its own.
  void Allgather(const Part& part) {
    const std::vector<int64_t>& bytes = part.shares->from;
    if (AllEqual(bytes)) {
      if (Skips(bytes[0])) return;
      return Keep(call_.all_gather(part.input, part.output, static_cast<size_t>(bytes[0]), kUint8,
                                   comm_, stream_));
    }
    std::byte* output = part.output;
    for (int peer = 0; peer < size_; output += bytes[static_cast<size_t>(peer++)]) {
      const std::byte* const input = peer == rank_ ? part.input : output;
      Broadcast(input, output, bytes[static_cast<size_t>(peer)], peer);
    }
  }

  // Likewise: where the parts differ each is reduced to its rank.
  void Reducescatter(const Part& part) {
    const std::vector<int64_t>& bytes = part.shares->to;
    if (AllEqual(bytes)) {
      if (Skips(bytes[0])) return;
      return Keep(call_.reduce_scatter(part.input, part.output, Elements(bytes[0]), type_, op_,
                                       comm_, stream_));
    }
    const std::byte* input = part.input;
    for (int peer = 0; peer < size_; input += bytes[static_cast<size_t>(peer++)]) {
      const int64_t length = bytes[static_cast<size_t>(peer)];
      if (Skips(length)) continue;
      Keep(call_.reduce(input, part.output, Elements(length), type_, op_, peer, comm_, stream_));
    }
  }

  void Alltoall(const Part& part) {
    const std::byte* input = part.input;
    std::byte* output = part.output;
    for (int peer = 0; peer < size_; ++peer) {
      const int64_t sent = part.shares->to[static_cast<size_t>(peer)];
      const int64_t received = part.shares->from[static_cast<size_t>(peer)];
      if (!Skips(sent))
        Keep(call_.send(input, static_cast<size_t>(sent), kUint8, peer, comm_, stream_));
      if (!Skips(received))
        Keep(call_.receive(output, static_cast<size_t>(received), kUint8, peer, comm_, stream_));
      input += sent;
      output += received;
    }
  }

  const NcclFunctions& call_;
  void* const comm_;
  void* const stream_;
  const int type_;
  const int64_t element_;
  const int op_;
  const int root_;
  const int rank_;
  const int size_;
  int result_ = kSuccess;
};

}  // namespace

int Issue(const CollectiveSpec& spec, const std::vector<Part>& parts, int op, int rank, int size,
          const Communicator& communicator) {
  return Group(spec, op, rank, size, communicator).Run(spec.kind, parts);
}

}  // namespace hvd::nccl
