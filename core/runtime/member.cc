#include "runtime/member.h"

#include <algorithm>
#include <string>

namespace hvd {

using negotiate::Announcement;
using negotiate::Decision;
using negotiate::kNoId;

namespace {

// "NEGOTIATE_ALLREDUCE"
std::string NegotiatePhase(OpKind kind) {
  std::string phase = std::string("NEGOTIATE_") + Name(kind);
  std::transform(phase.begin(), phase.end(), phase.begin(), ::toupper);
  return phase;
}

}  // namespace

void Member::Add(const HandlePtr& handle) {
  const negotiate::Request& request = handle->entry.request;
  Announcement announcement;
  announcement.id = cache_.Find(request);
  announcement.ordinal = handle->ordinal;
  if (announcement.id == kNoId) {
    announcement.request = request;
    Count(counters_->cache_misses);
  } else {
    Count(counters_->cache_hits);
  }
  if (request.kind == OpKind::kAllgather) announcement.sizes = negotiate::SizesOf(request);
  if (handle->ordinal != 0) {
    unnamed_.emplace(handle->ordinal, handle);
  } else if (announcement.id != kNoId) {
    if (by_id_.size() <= announcement.id) by_id_.resize(announcement.id + 1);
    by_id_[announcement.id] = handle;
  }
  message_.announcements.push_back(std::move(announcement));
  handle->announced = ++announced_;
  if (handle->entry.urgent) urgent_ = announced_;
  if (events_ != nullptr) events_->Begin(handle->name(), NegotiatePhase(request.kind));
}

void Member::Urge(const HandlePtr& handle) {
  if (!handle->decided) urgent_ = std::max(urgent_, handle->announced);
}

bool Member::TakeMessage(negotiate::AnnounceMessage* message) {
  if (message_.announcements.empty() && urgent_ == urgent_sent_) return false;
  message_.urgent = urgent_sent_ = urgent_;
  *message = std::move(message_);
  message_ = {};
  return true;
}

HandlePtr Member::Claim(const Decision& decision) {
  HandlePtr handle;
  if (decision.ordinal != 0) {
    const auto found = unnamed_.find(decision.ordinal);
    if (found == unnamed_.end()) return nullptr;
    handle = std::move(found->second);
    unnamed_.erase(found);
  } else if (decision.known) {
    if (decision.id < by_id_.size()) handle = std::move(by_id_[decision.id]);
  } else {
    handle = queue_->Find(set_, decision.name);
  }
  return handle;
}

Status Member::Match(negotiate::Response response, std::vector<Decided>* decided) {
  if (response.number != ++responses_) {
    return Status::Aborted("response " + std::to_string(response.number) + " of process set " +
                           std::to_string(set_) + " came instead of response " + std::to_string(responses_));
  }
  if (events_ != nullptr) events_->MarkCycle();
  decided->reserve(response.decisions.size());
  for (Decision& decision : response.decisions) {
    HandlePtr handle = Claim(decision);
    if (handle == nullptr || handle->decided) {
      return Status::Aborted("a response names '" + decision.name + "', which this rank has not announced");
    }
    handle->decided = true;
    if (!decision.known && decision.id != kNoId) {
      HVD_RETURN_IF_ERROR(cache_.Learn(decision.id, handle->entry.request));
    }
    if (events_ != nullptr) events_->End(handle->name());
    decided->push_back({std::move(handle), std::move(decision)});
  }
  return Status::Ok();
}

}  // namespace hvd
