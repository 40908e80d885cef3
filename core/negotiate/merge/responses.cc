// What a merger learns of the responses that pass it on their way down.

#include "base/text.h"
#include "negotiate/merge/merger.h"

namespace hvd::negotiate {
namespace {

Status Unexpected(const Decision& decision) {
  return Status::Aborted("a response names '" + Shown(decision.name) +
                         "', which not all ranks here have announced");
}

}  // namespace

Status Merger::Pass(const Response& response) {
  for (const Decision& decision : response.decisions) HVD_RETURN_IF_ERROR(PassOne(decision));
  if (response.last_joined.known()) HVD_RETURN_IF_ERROR(EndJoin());
  if (!response.schedule.empty()) Follow();
  if (response.forgets) Forget();
  return Status::Ok();
}

Status Merger::PassOne(const Decision& decision) {
  if (IsRun(decision)) return PassRun(decision);
  Tally* tally = TallyOf(decision);
  // Those who have all joined take part in what they have not announced.
  const bool expected =
      tally != nullptr ? tally->complete : decision.partial && all_joined_ == children_.size();
  if (!expected) return Unexpected(decision);
  if (decision.id != kNoId && !decision.known) HVD_RETURN_IF_ERROR(Learn(decision, tally));
  if (tally != nullptr) End(tally);
  return Status::Ok();
}

Status Merger::PassRun(const Decision& run) {
  for (uint32_t id = run.id; id < run.id + run.count; ++id) {
    const uint32_t name = id < name_of_id_.size() ? name_of_id_[id] : kNoId;
    Tally* tally = name == kNoId ? nullptr : tallies_.Named(name);
    if (tally == nullptr || !tally->complete) return Unexpected(run);
    End(tally);
  }
  return Status::Ok();
}

void Merger::End(Tally* tally) {
  urgency_.Release(tally->number);
  tallies_.End(tally);
}

Tally* Merger::TallyOf(const Decision& decision) const {
  if (decision.ordinal != 0) return tallies_.Unnamed(decision.ordinal);
  uint32_t name = kNoId;
  if (!decision.known) {
    name = tallies_.FindName(decision.name);
  } else if (decision.id < name_of_id_.size()) {
    name = name_of_id_[decision.id];
  }
  return name == kNoId ? nullptr : tallies_.Named(name);
}

Status Merger::Learn(const Decision& decision, const Tally* tally) {
  const Request* request = decision.request ? &*decision.request : nullptr;
  if (tally != nullptr && tally->details != nullptr) request = &tally->details->variants[0].request;
  if (request == nullptr) {
    return Status::Aborted("a response gives id " + std::to_string(decision.id) +
                           " to what has one, or is not described");
  }
  HVD_RETURN_IF_ERROR(cache_.Learn(decision.id, *request));
  if (decision.id != name_of_id_.size()) return Status::Ok();
  const bool unnamed = request->name.empty();
  name_of_id_.push_back(unnamed ? kNoId : tallies_.NameOf(request->name));
  if (!unnamed) tallies_.Keep(name_of_id_.back());
  return Status::Ok();
}

}  // namespace hvd::negotiate
