#include "runtime/executor.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "fusion/plan.h"

namespace hvd {

namespace {

int64_t BytesOf(const negotiate::TensorMeta& meta) {
  return NumElements(meta.shape) * static_cast<int64_t>(SizeOf(meta.dtype));
}

// `rank_bytes` of an allgather; plans must not depend on this rank's own part.
fusion::Ready Describe(const negotiate::Request& request, size_t tensor,
                       const std::vector<int64_t>& rank_bytes) {
  fusion::Ready ready;
  ready.kind = request.kind;
  ready.op = request.reduce_op;
  ready.prescale = request.prescale;
  ready.postscale = request.postscale;
  ready.root = request.root;
  ready.device = request.device;
  ready.dtype = request.tensors[tensor].dtype;
  ready.bytes = request.kind == OpKind::kAllgather
                    ? std::accumulate(rank_bytes.begin(), rank_bytes.end(), int64_t{0})
                    : BytesOf(request.tensors[tensor]);
  return ready;
}

// Integer division of a Sum is part of the operation, so it travels apart from the factors.
Reduction ReductionOf(const negotiate::Request& request, DataType dtype, int64_t members) {
  const bool average = request.reduce_op == ReduceOp::kAverage;
  return {dtype, average ? ReduceOp::kSum : request.reduce_op, request.prescale, request.postscale,
          average ? members : 1};
}

std::string UpperName(OpKind kind) {
  std::string name = Name(kind);
  std::transform(name.begin(), name.end(), name.begin(), ::toupper);
  return name;
}

}  // namespace

Status Executor::Add(std::vector<Decided> decided, int64_t fusion_threshold) {
  std::vector<Part> parts;
  parts.reserve(decided.size());
  for (Decided& one : decided) HVD_RETURN_IF_ERROR(Prepare(std::move(one), &parts));
  std::vector<fusion::Ready> ready;
  ready.reserve(parts.size());
  for (const Part& part : parts) {
    ready.push_back(Describe(part.handle->entry.request, part.tensor, part.rank_bytes));
  }
  for (const std::vector<size_t>& group : fusion::Plan(ready, fusion_threshold)) {
    std::vector<Part> together;
    together.reserve(group.size());
    for (size_t i : group) together.push_back(std::move(parts[i]));
    waiting_.push_back(MakeJob(std::move(together)));
  }
  return Status::Ok();
}

Status Executor::Prepare(Decided decided, std::vector<Part>* parts) {
  const HandlePtr& handle = decided.handle;
  const negotiate::Request& request = handle->entry.request;
  if (!decided.decision.error.empty()) {
    Complete(handle, {Code::kMismatch, decided.decision.error});
    return Status::Ok();
  }
  if (request.tensors.empty()) {
    waiting_.push_back(BarrierJob(handle));
    return Status::Ok();
  }
  handle->running = request.tensors.size();
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    Part part{handle, t, {}};
    if (request.kind == OpKind::kAllgather) {
      HVD_RETURN_IF_ERROR(PrepareAllgather(handle, decided.decision, t, &part.rank_bytes));
    }
    parts->push_back(std::move(part));
  }
  return Status::Ok();
}

Status Executor::PrepareAllgather(const HandlePtr& handle, const negotiate::Decision& decision, size_t tensor,
                                  std::vector<int64_t>* rank_bytes) {
  const negotiate::TensorMeta& meta = handle->entry.request.tensors[tensor];
  const size_t size = members_.size();
  if (decision.sizes.size() != size * handle->entry.request.tensors.size()) {
    return Status::Aborted("a response carries the wrong number of sizes for '" + handle->name() + "'");
  }
  Shape shape = meta.shape.empty() ? Shape{1} : meta.shape;
  Shape row(shape.begin() + 1, shape.end());
  const int64_t row_bytes = NumElements(row) * static_cast<int64_t>(SizeOf(meta.dtype));
  shape[0] = 0;
  for (size_t r = 0; r < size; ++r) {
    const int64_t rows = decision.sizes[tensor * size + r];
    int64_t bytes = 0;
    if (rows < 0 || __builtin_mul_overflow(rows, row_bytes, &bytes) ||
        __builtin_add_overflow(shape[0], rows, &shape[0])) {
      return Status::Aborted("a response carries impossible sizes for '" + handle->name() + "'");
    }
    rank_bytes->push_back(bytes);
  }
  if (handle->entry.buffers[tensor].output != nullptr) return Status::Ok();
  handle->outputs.resize(handle->entry.request.tensors.size());
  return Output::Allocate(meta.dtype, std::move(shape), &handle->outputs[tensor]);
}

// What has no tensor (a barrier, an empty group) still happens on all ranks together.
Executor::Job Executor::BarrierJob(const HandlePtr& handle) {
  Job job;
  job.spec.kind = OpKind::kBarrier;
  job.parts.push_back({handle, 0, {}});
  handle->running = 1;
  return job;
}

Executor::Job Executor::MakeJob(std::vector<Part> parts) const {
  Job job;
  const negotiate::Request& first = parts.front().handle->entry.request;
  job.spec.kind = first.kind;
  job.spec.reduction = ReductionOf(first, first.tensors[parts.front().tensor].dtype, members_.size());
  job.spec.root =
      static_cast<int>(std::find(members_.begin(), members_.end(), first.root) - members_.begin());
  job.spec.pieces.reserve(parts.size());
  for (Part& part : parts) {
    Handle& handle = *part.handle;
    const TensorBuffer& buffer = handle.entry.buffers[part.tensor];
    // An empty tensor may have no address at all.
    const bool ours = buffer.output == nullptr && !handle.outputs.empty();
    std::byte* output = ours ? handle.outputs[part.tensor].data.get() : buffer.output;
    job.spec.pieces.push_back({buffer.input, output, BytesOf(handle.entry.request.tensors[part.tensor])});
    if (first.kind == OpKind::kAllgather) job.spec.rank_bytes.push_back(part.rank_bytes);
  }
  job.parts = std::move(parts);
  return job;
}

Status Executor::Advance(bool* moved) {
  if (machine_ == nullptr) {
    if (waiting_.empty()) return Status::Ok();
    Start(std::move(waiting_.front()));
    waiting_.pop_front();
    *moved = true;
  }
  switch (machine_->Advance()) {
    case Step::kBlocked:
      return Status::Ok();
    case Step::kProgressed:
      *moved = true;
      return Status::Ok();
    case Step::kDone:
      *moved = true;
      machine_.reset();
      Finish(current_);
      return Status::Ok();
    case Step::kFailed:
      break;
  }
  return machine_->status();
}

void Executor::Start(Job job) {
  job.spec.sequence = ++sequence_;
  Count(counters_->collectives);
  Count(counters_->tensors, job.parts.size());
  for (const Piece& piece : job.spec.pieces) Count(counters_->bytes, static_cast<uint64_t>(piece.bytes));
  if (events_ != nullptr) Trace(job, true);
  machine_ = backend_->Start(std::move(job.spec));
  current_ = std::move(job);
}

void Executor::Finish(Job& job) {
  if (events_ != nullptr) Trace(job, false);
  for (Part& part : job.parts) {
    if (--part.handle->running == 0) Complete(part.handle, Status::Ok());
  }
  job = {};
}

void Executor::Complete(const HandlePtr& handle, Status status) {
  queue_->Forget(*handle);
  handle->status = std::move(status);
  if (handle->entry.on_complete) finished_.push_back(handle);
  handle->done.store(true, std::memory_order_release);
}

void Executor::Trace(const Job& job, bool begin) {
  for (const Part& part : job.parts) {
    if (begin) {
      events_->Begin(part.handle->name(), UpperName(part.handle->entry.request.kind));
    } else {
      events_->End(part.handle->name());
    }
  }
}

void Executor::Abandon() {
  machine_.reset();
  current_ = {};
  waiting_.clear();
}

}  // namespace hvd
