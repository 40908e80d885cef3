// Batches of a schedule that marks carry. Such an operation takes less time than to plan it, so it
// is planned once, and the memory that it needs is kept.

#include "runtime/progress/executor.h"

namespace hvd {

Status Executor::AddCarried(const std::vector<HandlePtr>& operations, Watermarks* carrier,
                            CarriedBatch* batch) {
  for (const HandlePtr& handle : operations) {
    handle->running = handle->entry.buffers.size();
    for (size_t t = 0; t < handle->running; ++t) {
      if (handle->entry.buffers[t].output == nullptr)
        HVD_RETURN_IF_ERROR(PrepareOutput({handle, t, 1.0, nullptr}));
    }
  }
  Fill(operations, carrier, batch);
  for (auto& [job, sources] : batch->collectives_) {
    if (machine_ == nullptr && waiting_.empty()) {
      Combine(&job);
    } else {  // in the order in which all was decided
      waiting_.push_back({job.spec, std::move(job.parts), true});
    }
    job.parts.clear();
  }
  return Status::Ok();
}

// With the memory of these operations, and what their members have brought.
void Executor::Fill(const std::vector<HandlePtr>& operations, Watermarks* carrier,
                    CarriedBatch* batch) const {
  for (auto& [job, sources] : batch->collectives_) {
    CollectiveSpec& spec = job.spec;
    Count(counters_->carried, sources.size());
    spec.pieces.clear();
    spec.gathered.clear();
    for (const CarriedBatch::Source& source : sources) {
      const HandlePtr& handle = operations[source.operation];
      const TensorBuffer& buffer = handle->entry.buffers[source.tensor];
      spec.pieces.push_back({buffer.input, handle->OutputOf(source.tensor), buffer.input_bytes});
      job.parts.push_back({handle, source.tensor, 1.0, nullptr});
    }
    for (Position member(0); member.value() < members_.size(); member = Next(member)) {
      const std::byte* const payload = carrier->PayloadOf(member);
      for (size_t i = 0; i < sources.size(); ++i) {
        const std::byte* const input = payload + sources[i].in_payload;
        spec.gathered.insert(spec.gathered.end(), input, input + spec.pieces[i].bytes);
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
