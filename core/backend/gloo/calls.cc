#include "backend/gloo/calls.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <stdexcept>

namespace hvd::gloo_backend {

namespace {

using Context = std::shared_ptr<gloo::Context>;

// Calls of a set follow each other, so the number need not be unique for longer.
uint32_t Tag(const LibraryCall& call) { return static_cast<uint32_t>(call.sequence); }

// Gloo copies elements whole; what they are, `combine` knows.
template <typename Element>
void AllreduceOf(const Context& context, const LibraryCall& call, CombineFunction combine) {
  gloo::AllreduceOptions options(context);
  options.setTag(Tag(call));
  options.setOutput(reinterpret_cast<Element*>(call.output),
                    static_cast<size_t>(call.output_bytes[0]) / sizeof(Element));
  options.setReduceFunction(
      [&call, combine](void* result, const void* left, const void* right, size_t elements) {
        combine(call.dtype, call.op, left, right, result, static_cast<int64_t>(elements));
      });
  gloo::allreduce(options);
}

void Allreduce(const Context& context, const LibraryCall& call, CombineFunction combine) {
  switch (SizeOf(call.dtype)) {
    case 1:
      return AllreduceOf<uint8_t>(context, call, combine);
    case 2:
      return AllreduceOf<uint16_t>(context, call, combine);
    case 4:
      return AllreduceOf<uint32_t>(context, call, combine);
    default:
      return AllreduceOf<uint64_t>(context, call, combine);
  }
}

void Allgather(const Context& context, const LibraryCall& call) {
  gloo::AllgathervOptions options(context);
  options.setTag(Tag(call));
  options.setInput(reinterpret_cast<char*>(call.input), static_cast<size_t>(call.input_bytes[0]));
  options.setOutput(reinterpret_cast<char*>(call.output),
                    std::vector<size_t>(call.output_bytes.begin(), call.output_bytes.end()));
  gloo::allgatherv(options);
}

void Broadcast(const Context& context, const LibraryCall& call) {
  gloo::BroadcastOptions options(context);
  options.setTag(Tag(call));
  options.setRoot(call.root);
  options.setOutput(reinterpret_cast<char*>(call.output),
                    static_cast<size_t>(call.output_bytes[0]));
  gloo::broadcast(options);
}

void Alltoall(const Context& context, const LibraryCall& call) {
  gloo::AlltoallvOptions options(context);
  options.setTag(Tag(call));
  options.setInput(reinterpret_cast<char*>(call.input), call.input_bytes);
  options.setOutput(reinterpret_cast<char*>(call.output), call.output_bytes);
  gloo::alltoallv(options);
}

void Barrier(const Context& context, const LibraryCall& call) {
  gloo::BarrierOptions options(context);
  options.setTag(Tag(call));
  gloo::barrier(options);
}

}  // namespace

void Run(const Context& context, const LibraryCall& call, CombineFunction combine) {
  switch (call.kind) {
    case OpKind::kAllreduce:
      return Allreduce(context, call, combine);
    case OpKind::kAllgather:
      return Allgather(context, call);
    case OpKind::kBroadcast:
      return Broadcast(context, call);
    case OpKind::kAlltoall:
      return Alltoall(context, call);
    case OpKind::kBarrier:
      return Barrier(context, call);
    case OpKind::kReducescatter:
    case OpKind::kJoin:
      break;
  }
  throw std::logic_error("a collective that Gloo does not have");
}

}  // namespace hvd::gloo_backend
