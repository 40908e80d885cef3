// Batches of a schedule. To plan a small one takes longer than to carry it out, so it is planned
// once, and the memory that this needs is kept.

#include <algorithm>

#include "runtime/progress/executor.h"
#include "runtime/progress/payload.h"

namespace hvd {

namespace {

bool IsAlikeEachTime(const negotiate::Request& request) {
  return !request.tensors.empty() && !HasResultSizes(request.kind) &&
         KindOf(request.device) != DeviceKind::kGpu;
}

}  // namespace

Executor::PlannedBatch Executor::Plan(const std::vector<negotiate::Request>& requests,
                                      const Policy& policy) const {
  if (!std::all_of(requests.begin(), requests.end(), IsAlikeEachTime)) return {};
  std::vector<fusion::Ready> ready;
  std::vector<PlannedBatch::Source> sources;
  size_t in_payload = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t t = 0; t < requests[i].tensors.size(); ++t) {
      ready.push_back(Describe(requests[i], t, requests[i].prescale, nullptr));
      sources.push_back({i, t, in_payload});
      in_payload += PayloadBytes(negotiate::BytesOf(requests[i].tensors[t]));
    }
  }
  PlannedBatch batch;
  for (const std::vector<size_t>& group : fusion::Plan(ready, policy.fusion_threshold)) {
    PlannedBatch::Collective& collective = batch.collectives_.emplace_back();
    for (const size_t i : group) collective.sources.push_back(sources[i]);
    const PlannedBatch::Source& first = collective.sources.front();
    const negotiate::Request& request = requests[first.operation];
    collective.job.spec = SpecOf(request, first.tensor, request.prescale, policy);
    if (BackendOf(collective.job.spec) == nullptr) return {};
  }
  return batch;
}

Status Executor::AddPlanned(const std::vector<HandlePtr>& operations, Watermarks* carrier,
                            PlannedBatch* batch) {
  for (const HandlePtr& handle : operations) {
    handle->running = handle->entry.buffers.size();
    for (size_t t = 0; t < handle->running; ++t) {
      if (handle->entry.buffers[t].output == nullptr)
        HVD_RETURN_IF_ERROR(PrepareOutput({handle, t, 1.0, nullptr}));
    }
  }
  Fill(operations, batch);
  if (carrier != nullptr) Gather(carrier, batch);
  for (auto& [job, sources] : batch->collectives_) {
    const bool carried = carrier != nullptr;
    if (machine_ != nullptr || !waiting_.empty()) {  // in the order in which all was decided
      waiting_.push_back({job.spec, std::move(job.parts), carried});
    } else if (carried) {
      Combine(&job);
    } else {
      HVD_RETURN_IF_ERROR(Begin({job.spec, std::move(job.parts), false}));
    }
    job.parts.clear();
  }
  return Status::Ok();
}

void Executor::Fill(const std::vector<HandlePtr>& operations, PlannedBatch* batch) {
  for (auto& [job, sources] : batch->collectives_) {
    job.spec.pieces.clear();
    for (const PlannedBatch::Source& source : sources) {
      const HandlePtr& handle = operations[source.operation];
      const TensorBuffer& buffer = handle->entry.buffers[source.tensor];
      job.spec.pieces.push_back(
          {buffer.input, handle->OutputOf(source.tensor), buffer.input_bytes});
      job.parts.push_back({handle, source.tensor, 1.0, nullptr});
    }
  }
}

// What the members have brought.
void Executor::Gather(Watermarks* carrier, PlannedBatch* batch) const {
  for (auto& [job, sources] : batch->collectives_) {
    Count(counters_->carried, sources.size());
    std::vector<std::byte>& gathered = job.spec.gathered;
    gathered.clear();
    for (Position member(0); member.value() < members_.size(); member = Next(member)) {
      const std::byte* const payload = carrier->PayloadOf(member);
      for (size_t i = 0; i < sources.size(); ++i) {
        const std::byte* const input = payload + sources[i].in_payload;
        gathered.insert(gathered.end(), input, input + job.spec.pieces[i].bytes);
      }
    }
  }
}

void Executor::Combine(Job* job) {
  Note(*job);
  job->spec.sequence = ++sequence_;
  BackendOf(job->spec)->Combine(job->spec);
  Finish(*job);
}

}  // namespace hvd
