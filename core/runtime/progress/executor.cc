#include "runtime/progress/executor.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace hvd {

Status Executor::Advance(bool* moved) {
  if (machine_ == nullptr) {
    if (waiting_.empty()) return Status::Ok();
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    *moved = true;
    if (job.carried) {
      Combine(&job);
      return Status::Ok();
    }
    HVD_RETURN_IF_ERROR(Begin(std::move(job)));
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
      if (setting_up_) return Start();
      if (counts_ != nullptr) return Counted();
      Finish(current_);
      current_ = {};
      return Status::Ok();
    case Step::kFailed:
      break;
  }
  return machine_->status();
}

Backend* Executor::BackendOf(const CollectiveSpec& spec) const {
  const auto serves = [&spec](const auto& backend) { return backend->Serves(spec); };
  const auto found = std::find_if(backends_.begin(), backends_.end(), serves);
  return found == backends_.end() ? nullptr : found->get();
}

bool Executor::TakesGathered(const negotiate::Request& request) const {
  CollectiveSpec spec;
  spec.kind = request.kind;
  spec.reduction.op = request.reduce_op;
  spec.device = request.device;
  if (request.tensors.empty()) return false;
  spec.reduction.dtype = request.tensors.front().dtype;
  const Backend* backend = BackendOf(spec);
  return backend != nullptr && backend->TakesGathered(spec);
}

bool Executor::WritesToInputOf(const Handle& handle) const {
  const auto overwrites = [&handle](const Part& part) {
    const std::vector<TensorBuffer>& buffers = part.handle->entry.buffers;
    if (buffers.empty() || buffers[part.tensor].output == nullptr) return false;
    const std::byte* const output = buffers[part.tensor].output;
    const std::byte* const end = output + buffers[part.tensor].output_bytes;
    return std::any_of(handle.entry.buffers.begin(), handle.entry.buffers.end(),
                       [&](const TensorBuffer& buffer) {
                         return output < buffer.input + buffer.input_bytes && buffer.input < end;
                       });
  };
  const auto any = [&overwrites](const Job& job) {
    return std::any_of(job.parts.begin(), job.parts.end(), overwrites);
  };
  return any(current_) || std::any_of(waiting_.begin(), waiting_.end(), any);
}

// What this rank submits was checked then. What it takes part in since it has joined is what
// another rank says.
Status Executor::CheckServed(const CollectiveSpec& spec) const {
  if (BackendOf(spec) != nullptr) return Status::Ok();
  return Status::Aborted(std::string("no backend of this job runs ") + Name(spec.kind) + " of " +
                         Name(KindOf(spec.device)));
}

// What begins.
void Executor::Note(const Job& job) {
  Count(counters_->collectives);
  if (Reduces(job.spec.kind)) Count(counters_->reductions);
  Count(counters_->tensors, job.parts.size());
  for (const Piece& piece : job.spec.pieces)
    Count(counters_->bytes, static_cast<uint64_t>(piece.bytes));
  if (events_ != nullptr) Trace(job);
}

Status Executor::Begin(Job job) {
  Note(job);
  if (!job.spec.order.empty()) {
    job.spec.title = Title(job);
    job.spec.end = &end_;
  }
  current_ = std::move(job);
  if (Reduces(current_.spec.kind)) HVD_RETURN_IF_ERROR(KeepSharedInputs(&current_));
  const bool alltoall = current_.spec.kind == OpKind::kAlltoall;
  if (alltoall && members_.size() > 1) {
    counts_ = MakeCounts();
  } else if (alltoall) {
    HVD_RETURN_IF_ERROR(UseCounts(nullptr));
  }
  return Launch();
}

// The next collective, or first what sets up its backend.
Status Executor::Launch() {
  CollectiveSpec& spec = counts_ != nullptr ? counts_->spec() : current_.spec;
  spec.sequence = ++sequence_;
  backend_ = BackendOf(spec);
  if (backend_ == nullptr) return CheckServed(spec);
  if (std::find(set_up_.begin(), set_up_.end(), backend_) == set_up_.end()) {
    set_up_.push_back(backend_);
    machine_ = backend_->SetUp(spec, waker_);
    setting_up_ = machine_ != nullptr;
  }
  return setting_up_ ? Status::Ok() : Start();
}

Status Executor::Start() {
  setting_up_ = false;
  if (counts_ == nullptr) HVD_RETURN_IF_ERROR(AllocateResults());
  machine_ = backend_->Start(std::move(counts_ != nullptr ? counts_->spec() : current_.spec));
  return Status::Ok();
}

std::unique_ptr<CountExchange> Executor::MakeCounts() const {
  std::vector<const std::vector<int64_t>*> rows;
  for (const Part& part : current_.parts) rows.push_back(&part.sizes->sent);
  return std::make_unique<CountExchange>(current_.spec, rows, position_.value(), members_.size());
}

// Null: this rank is the only member.
Status Executor::UseCounts(const CountExchange* counts) {
  CollectiveSpec& spec = current_.spec;
  for (size_t i = 0; i < current_.parts.size(); ++i) {
    const Part& part = current_.parts[i];
    const Handle& handle = *part.handle;
    HVD_RETURN_IF_ERROR(AddReceived(handle.entry.request, handle.name(), part.tensor,
                                    counts != nullptr ? counts->RowsFrom(i) : part.sizes->sent,
                                    part.sizes.get(), &culprit_));
    spec.shares[i] = part.sizes->shares;
  }
  if (counts != nullptr) {
    HVD_RETURN_IF_ERROR(counts->FillSenders(&spec, &culprit_));
  } else {
    spec.senders.resize(1);
  }
  // Nothing is sized by what others say before all of it is checked.
  for (size_t i = 0; i < current_.parts.size(); ++i) {
    const Part& part = current_.parts[i];
    HVD_RETURN_IF_ERROR(PrepareOutput(part));
    spec.pieces[i].output = part.handle->OutputOf(part.tensor);
  }
  return Status::Ok();
}

Status Executor::Counted() {
  const std::unique_ptr<CountExchange> counts = std::move(counts_);
  HVD_RETURN_IF_ERROR(UseCounts(counts.get()));
  if (!counts->HasAllRows(current_.spec)) return Launch();
  counts->TakeRows(current_.spec);
  Finish(current_);
  current_ = {};
  return Status::Ok();
}

// Those on a GPU; what a rank that has joined would get is dropped.
Status Executor::AllocateResults() {
  CollectiveSpec& spec = current_.spec;
  for (size_t i = 0; i < spec.order.size(); ++i) {
    const Part& part = current_.parts[i];
    if (spec.pieces[i].output != nullptr || part.handle->entry.neutral) continue;
    Output& output = part.handle->outputs[part.tensor];
    HVD_RETURN_IF_ERROR(backend_->Allocate(spec.order[i], output.bytes, &output.data));
    spec.pieces[i].output = output.data.get();
  }
  return Status::Ok();
}

bool Executor::broken() const {
  return std::any_of(backends_.begin(), backends_.end(),
                     [](const auto& backend) { return backend->broken(); });
}

void Executor::Finish(Job& job) {
  for (Part& part : job.parts) {
    if (end_ != nullptr) GiveEnd(part);
    if (--part.handle->running == 0) Complete(part.handle, Status::Ok());
  }
  end_.reset();
}

// Collectives of one operation have one stream, so that the last one ends last.
void Executor::GiveEnd(const Part& part) const {
  Handle* const handle = part.handle.get();
  if (handle->entry.neutral) return;
  handle->end = end_;
  Output& output = handle->outputs[part.tensor];
  output.device = handle->entry.request.device;
  output.end = end_;
  if (auto* const free = std::get_deleter<DeviceFree>(output.data)) free->end = end_;
}

void Executor::Complete(const HandlePtr& handle, Status status) noexcept {
  if (!handle->entry.neutral) {
    queue_->Forget(handle.get());
    ++completed_;
  }
  if (events_ != nullptr) events_->End(handle->id);
  handle->kept.clear();
  if (handle->entry.sampled && status.ok() && !handle->entry.OnGpu())
    handle->sample = Sample(handle->entry);
  EndOperation(handle, std::move(status), &finished_);
}

// A group has one row, so one event.
void Executor::Trace(const Job& job) {
  const Handle* last = nullptr;
  for (const Part& part : job.parts) {
    if (part.handle.get() == last) continue;
    last = part.handle.get();
    events_->Phase(last->id, OperationPhase(last->entry.request.kind));
  }
}

std::string Executor::Running() const {
  const Job& job = current_.parts.empty() && !waiting_.empty() ? waiting_.front() : current_;
  return job.parts.empty() ? "" : Title(job);
}

std::string Executor::Title(const Job& job) {
  const Handle& first = *job.parts.front().handle;
  const size_t more = job.parts.size() - 1;
  return std::string(Name(first.entry.request.kind)) + " of '" + Shown(first.name()) + "'" +
         (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

void Executor::Abandon() noexcept {
  for (const auto& backend : backends_) backend->Abort();
  machine_.reset();
  counts_.reset();
  setting_up_ = false;
  end_.reset();
  current_ = {};
  waiting_.clear();
}

}  // namespace hvd
