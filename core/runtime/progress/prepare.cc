// From the operations that are decided to the collectives that carry them out.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "collective/kernels/kernels.h"
#include "fusion/plan.h"
#include "runtime/progress/executor.h"

namespace hvd {

namespace {

// Integer division of a Sum is part of the operation, so it travels apart from the factors.
Reduction ReductionOf(const negotiate::Request& request, double prescale, DataType dtype,
                      int64_t members) {
  const bool average = request.reduce_op == ReduceOp::kAverage;
  return {dtype, average ? ReduceOp::kSum : request.reduce_op, prescale, request.postscale,
          average ? members : 1};
}

// A rank that has joined knows a device only from another rank's request; what it brings lies on
// the host.
DeviceOrder OrderOf(const Entry& entry) {
  DeviceOrder order = entry.order;
  order.device = entry.neutral ? kHostDevice : entry.request.device;
  return order;
}

// A rank that has joined brings the identity of Min, Max and Product, which a factor would spoil:
// so with one of those absent the others apply the factor to copies of their tensors first.
Status PrescaleAhead(Handle* handle, double* prescale) {
  const negotiate::Request& request = handle->entry.request;
  const bool linear = request.reduce_op == ReduceOp::kSum ||
                      request.reduce_op == ReduceOp::kAverage ||
                      request.reduce_op == ReduceOp::kAdasum;
  if (!Reduces(request.kind) || linear || *prescale == 1.0) return Status::Ok();
  const Reduction scaling{DataType::kFloat32, ReduceOp::kSum, *prescale, 1.0, 1};
  *prescale = 1.0;
  if (handle->entry.neutral) return Status::Ok();
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    Output& copy = handle->kept.emplace_back();
    HVD_RETURN_IF_ERROR(
        Output::Allocate(request.tensors[t].dtype, request.tensors[t].shape, &copy));
    Reduction reduction = scaling;
    reduction.dtype = copy.dtype;
    const void* source = handle->entry.buffers[t].input;
    void* destination = copy.data.get();
    kernels::Reduce(reduction, &source, 1, &destination, 1, NumElements(copy.shape));
    handle->entry.buffers[t].input = copy.data.get();  // as long as before
  }
  return Status::Ok();
}

using Range = std::pair<const std::byte*, const std::byte*>;

bool Overlap(const Range& one, const Range& other) {
  return one.first < other.second && other.first < one.second;
}

// Whether a piece writes to memory that another reads or writes. `outputs` are those of the pieces.
bool ShareOutputs(const std::vector<Piece>& pieces, std::vector<Range> outputs) {
  std::sort(outputs.begin(), outputs.end());
  if (std::adjacent_find(outputs.begin(), outputs.end(), Overlap) != outputs.end()) return true;
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    if (piece.input == piece.output) return false;
    const Range read(piece.input, piece.input + piece.bytes);
    const auto next = std::lower_bound(outputs.begin(), outputs.end(), Range(read.second, nullptr));
    return next != outputs.begin() && Overlap(*std::prev(next), read);
  });
}

Status Numbers(const std::vector<int64_t>& numbers, Output* output) {
  HVD_RETURN_IF_ERROR(
      Output::Allocate(DataType::kInt64, {static_cast<int64_t>(numbers.size())}, output));
  std::memcpy(output->data.get(), numbers.data(), numbers.size() * sizeof(int64_t));
  return Status::Ok();
}

}  // namespace

Status Executor::Add(std::vector<Decided> decided, const Policy& policy) {
  std::vector<Part> parts;
  parts.reserve(decided.size());
  std::vector<HandlePtr> last;
  for (Decided& one : decided) HVD_RETURN_IF_ERROR(Prepare(std::move(one), &parts, &last));
  std::vector<fusion::Ready> ready;
  ready.reserve(parts.size());
  for (const Part& part : parts) {
    ready.push_back(
        Describe(part.handle->entry.request, part.tensor, part.prescale, part.sizes.get()));
  }
  for (const std::vector<size_t>& group : fusion::Plan(ready, policy.fusion_threshold)) {
    std::vector<Part> together;
    together.reserve(group.size());
    for (size_t i : group) together.push_back(std::move(parts[i]));
    Job job = MakeJob(std::move(together), policy);
    HVD_RETURN_IF_ERROR(CheckServed(job.spec));
    waiting_.push_back(std::move(job));
  }
  // Who has waited for a barrier may count on all that was started before it; and as long as a join
  // is in flight, this rank drives the operations before it.
  for (const HandlePtr& handle : last) waiting_.push_back(BarrierJob(handle));
  return Status::Ok();
}

// Plans must not depend on this rank's own part.
fusion::Ready Executor::Describe(const negotiate::Request& request, size_t tensor, double prescale,
                                 const ResultSizes* sizes) {
  fusion::Ready ready;
  ready.kind = request.kind;
  ready.op = request.reduce_op;
  ready.prescale = prescale;
  ready.postscale = request.postscale;
  ready.root = request.root;
  ready.device = KindOf(request.device);
  ready.dtype = request.tensors[tensor].dtype;
  ready.bytes = sizes == nullptr ? negotiate::BytesOf(request.tensors[tensor]) : sizes->all_bytes;
  // How much travels in an alltoall no rank knows yet, but how large its rows are.
  if (request.kind == OpKind::kAlltoall)
    ready.bytes = negotiate::BytesPerRow(request.tensors[tensor]);
  return ready;
}

Status Executor::Prepare(Decided decided, std::vector<Part>* parts, std::vector<HandlePtr>* last) {
  const HandlePtr& handle = decided.handle;
  const negotiate::Request& request = handle->entry.request;
  if (!decided.error.empty()) {
    const bool noticed = decided.notice != 0;
    Complete(handle,
             noticed ? Status::Notice(decided.notice) : Status(Code::kMismatch, decided.error));
    return Status::Ok();
  }
  if (request.tensors.empty()) {
    last->push_back(handle);
    if (request.kind != OpKind::kJoin) return Status::Ok();
    return Numbers(decided.sizes, &handle->outputs.emplace_back());
  }
  double prescale = request.prescale;
  if (decided.partial) HVD_RETURN_IF_ERROR(PrescaleAhead(handle.get(), &prescale));
  handle->running = request.tensors.size();
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    Part& part = parts->emplace_back(Part{handle, t, prescale, {}});
    if (HasResultSizes(request.kind)) {
      part.sizes = std::make_unique<ResultSizes>();
      HVD_RETURN_IF_ERROR(FindResultSizes(request, handle->name(), t, decided.sizes,
                                          members_.size(), position_.value(), part.sizes.get()));
    }
    if (request.kind != OpKind::kAlltoall) HVD_RETURN_IF_ERROR(PrepareOutput(part));
  }
  return Status::Ok();
}

// Once the size of the result is known.
Status Executor::PrepareOutput(const Part& part) {
  Handle* const handle = part.handle.get();
  const negotiate::Request& request = handle->entry.request;
  const negotiate::TensorMeta& meta = request.tensors[part.tensor];
  TensorBuffer& buffer = handle->entry.buffers[part.tensor];
  if (part.sizes != nullptr && buffer.output != nullptr) {
    const int64_t needed = negotiate::BytesOf({meta.dtype, part.sizes->shape});
    if (buffer.output_bytes != needed) buffer.output = nullptr;
  }
  const bool alltoall = request.kind == OpKind::kAlltoall;
  if (buffer.output == nullptr || handle->entry.OnGpu())
    handle->outputs.resize(request.tensors.size());
  if (alltoall) HVD_RETURN_IF_ERROR(Numbers(part.sizes->received, &handle->outputs.emplace_back()));
  if (buffer.output != nullptr) return Status::Ok();
  const Shape& shape = part.sizes == nullptr ? meta.shape : part.sizes->shape;
  Output* const output = &handle->outputs[part.tensor];
  // A backend of a GPU has to be set up before it allocates.
  if (handle->entry.OnGpu()) return Output::Describe(meta.dtype, shape, output);
  return Output::Allocate(meta.dtype, shape, output);
}

// What has no tensor (a barrier, an empty group) still happens on all ranks together.
Executor::Job Executor::BarrierJob(const HandlePtr& handle) {
  Job job;
  job.spec.kind = OpKind::kBarrier;
  job.parts.push_back({handle, 0, 1.0, {}});
  handle->running = 1;
  return job;
}

// All of it but the tensors, of which this is the first.
CollectiveSpec Executor::SpecOf(const negotiate::Request& request, size_t tensor, double prescale,
                                const Policy& policy) const {
  CollectiveSpec spec;
  spec.kind = request.kind;
  spec.reduction = ReductionOf(request, prescale, request.tensors[tensor].dtype, members_.size());
  spec.root = members_.Find(request.root);
  spec.direct_bytes = policy.direct_bytes;
  spec.device = request.device;
  return spec;
}

Executor::Job Executor::MakeJob(std::vector<Part> parts, const Policy& policy) const {
  const Part& first = parts.front();
  Job job{SpecOf(first.handle->entry.request, first.tensor, first.prescale, policy), {}, false};
  job.spec.pieces.reserve(parts.size());
  for (Part& part : parts) {
    Handle& handle = *part.handle;
    const TensorBuffer& buffer = handle.entry.buffers[part.tensor];
    const ResultSizes* sizes = part.sizes.get();
    const int64_t bytes = sizes != nullptr ? sizes->input_bytes : buffer.input_bytes;
    job.spec.pieces.push_back({buffer.input, handle.OutputOf(part.tensor), bytes});
    if (sizes != nullptr) job.spec.shares.push_back(sizes->shares);
    if (handle.entry.OnGpu()) job.spec.order.push_back(OrderOf(handle.entry));
  }
  job.parts = std::move(parts);
  return job;
}

// Tensors that share memory, as tied weights do, and are reduced together, one in place: what is
// already reduced of one must not be taken for the input of another.
Status Executor::KeepSharedInputs(Job* job) {
  std::vector<Piece>& pieces = job->spec.pieces;
  const bool on_host = job->spec.order.empty();
  if (pieces.size() < 2 || !on_host) return Status::Ok();
  std::vector<Range> outputs;
  outputs.reserve(pieces.size());
  for (const Part& part : job->parts) {
    const std::byte* const begin = part.handle->OutputOf(part.tensor);
    outputs.emplace_back(begin, begin + part.handle->RoomOf(part.tensor));
  }
  if (!ShareOutputs(pieces, std::move(outputs))) return Status::Ok();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Part& part = job->parts[i];
    const negotiate::TensorMeta& meta = part.handle->entry.request.tensors[part.tensor];
    Output& copy = part.handle->kept.emplace_back();
    HVD_RETURN_IF_ERROR(Output::Allocate(meta.dtype, meta.shape, &copy));
    std::memcpy(copy.data.get(), pieces[i].input, static_cast<size_t>(pieces[i].bytes));
    pieces[i].input = copy.data.get();
  }
  return Status::Ok();
}

}  // namespace hvd
