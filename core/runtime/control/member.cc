#include "runtime/control/member.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "negotiate/agreement.h"

namespace hvd {

using negotiate::Announcement;
using negotiate::Decision;
using negotiate::kNoId;

namespace {

OperationInfo InfoOf(const negotiate::Request& request, bool scheduled) {
  OperationInfo info;
  info.scheduled = scheduled;
  info.kind = request.kind;
  info.name = request.name;
  info.tensors = static_cast<uint32_t>(request.tensors.size());
  info.bytes = negotiate::BytesOf(request);
  if (!request.tensors.empty()) info.dtype = request.tensors.front().dtype;
  if (request.tensors.size() == 1) info.shape = &request.tensors.front().shape;
  return info;
}

Status MakeNeutralHandle(uint32_t set, const negotiate::Request& request, uint64_t ordinal,
                         HandlePtr* handle) {
  Entry entry;
  std::vector<Output> memory;
  HVD_RETURN_IF_ERROR(MakeNeutral(set, request, &entry, &memory));
  *handle = std::make_shared<Handle>(std::move(entry));
  (*handle)->ordinal = ordinal;
  (*handle)->kept = std::move(memory);
  return Status::Ok();
}

}  // namespace

void Member::Add(const HandlePtr& handle) {
  const negotiate::Request& request = handle->entry.request;
  if (events_ != nullptr) events_->Begin(handle->id, set_, InfoOf(request, epoch_.has_value()));
  if (request.kind == OpKind::kJoin) {
    join_ = handle;
    departs_ = true;
    message_.joins = !epoch_;
  } else if (epoch_) {
    Place(handle);
  } else {
    Announce(handle);
  }
}

void Member::Announce(const HandlePtr& handle) {
  const uint32_t id = cache_.Find(handle->entry.request);
  Count(id == kNoId ? counters_->cache_misses : counters_->cache_hits);
  if (handle->ordinal != 0) {
    unnamed_.emplace(handle->ordinal, handle);
  } else if (id != kNoId) {
    if (by_id_.size() <= id) by_id_.resize(id + 1);
    by_id_[id] = handle;
  }
  Say(id, *handle);
  handle->announced = ++announced_;
  if (handle->entry.urgent || handle->urged) urgent_ = announced_;
}

// A run is longer by it, or it is one of its own.
void Member::Say(uint32_t id, const Handle& handle) {
  const negotiate::Request& request = handle.entry.request;
  Shape sizes = negotiate::SizesOf(request);
  std::vector<Announcement>& announcements = message_.announcements;
  const bool plain = id != kNoId && handle.ordinal == 0 && sizes.empty();
  if (plain && negotiate::Extend(id, {}, 0, &announcements)) return;
  Announcement& announcement = announcements.emplace_back();
  announcement.id = id;
  if (id == kNoId) announcement.request = request;
  announcement.ordinal = handle.ordinal;
  announcement.sizes = std::move(sizes);
}

// What comes behind an operation that the schedule does not have is not placed either: its order
// counts.
void Member::Place(const HandlePtr& handle) {
  handle->announced = ++announced_;
  if (handle->entry.urgent || handle->urged) urged_ = handle;
  const auto place = PlaceOf(*handle);
  departs_ = departs_ || !place;
  if (!departs_) epoch_->Fill(*place, handle);
}

// Nowhere where this rank does not bring as many rows as in the steps that were learned.
std::optional<size_t> Member::PlaceOf(const Handle& handle) const {
  const negotiate::Request& request = handle.entry.request;
  const auto place = epoch_->Next(IdOf(request), handle.ordinal != 0);
  if (!place) return place;
  const Shape own = negotiate::SizesOf(request);
  const std::vector<int64_t>& all = epoch_->At(*place).sizes;
  const auto members = static_cast<size_t>(members_.size());
  if (all.size() != own.size() * members) return std::nullopt;
  for (size_t i = 0; i < own.size(); ++i) {
    if (all[i * members + position_.index()] != own[i]) return std::nullopt;
  }
  return place;
}

std::vector<Decided> Member::TakeBatch() {
  std::vector<Decided> batch;
  batch.reserve(epoch_->next().size());
  epoch_->Pass([&batch](const negotiate::Slot& slot, HandlePtr handle) {
    handle->decided = true;
    batch.push_back({std::move(handle), slot.id, slot.sizes});
  });
  return batch;
}

void Member::Urge(const HandlePtr& handle) {
  if (handle->decided) return;
  handle->urged = true;
  if (epoch_) urged_ = handle;
  urgent_ = std::max(urgent_, handle->announced);
}

// Of one under a schedule: to look it up takes longer than to compare it with what most likely
// comes next.
uint32_t Member::IdOf(const negotiate::Request& request) const {
  const size_t expected = epoch_->expected();
  const bool as_expected = requests_[expected].SameAs(request);
  return as_expected ? epoch_->At(expected).id : cache_.Find(request);
}

void Member::TakeBatch(std::vector<HandlePtr>* operations) {
  epoch_->Pass([operations](const negotiate::Slot& /*slot*/, HandlePtr handle) {
    handle->decided.store(true, std::memory_order_release);
    operations->push_back(std::move(handle));
  });
}

bool Member::TakeMessage(negotiate::AnnounceMessage* message) {
  if (epoch_) return false;
  if (message_.announcements.empty() && !message_.joins && urgent_ == urgent_sent_) return false;
  message_.some_urgent = message_.all_urgent = urgent_sent_ = urgent_;
  message_.epoch = epochs_;
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
    // What others do after this rank has joined may have the name of what still runs here.
    if (handle != nullptr && handle->decided && join_ != nullptr) return nullptr;
    if (handle != nullptr && !decision.error.empty()) ForgetId(*handle);
  }
  return handle;
}

// This rank may have announced by an id what the ranks disagree about: the next operation of that
// id is another.
void Member::ForgetId(const Handle& handle) {
  const uint32_t id = cache_.Find(handle.entry.request);
  if (id < by_id_.size()) by_id_[id] = nullptr;
}

// A sound sequencer lets nothing run that cannot. What runs under an id was looked at when it got
// the id.
Status Member::CheckNew(const negotiate::Request& request, uint64_t ordinal) const {
  const Status status = CheckRequest(request);
  const std::string objection =
      status.ok() ? Objection(request, ordinal, members_) : status.message();
  if (objection.empty()) return Status::Ok();
  return Status::Aborted("a response lets an operation run that cannot: " + objection);
}

// Whether this rank's own operation can be what the decision lets run.
Status Member::CheckMeant(const Decision& decision, const Handle& handle) const {
  const negotiate::Request& request = handle.entry.request;
  if (!decision.known) return CheckNew(request, handle.ordinal);
  // A named one was found by its id.
  const bool fits = handle.ordinal == 0 || cache_.Find(request) == decision.id;
  if (fits) return Status::Ok();
  return Status::Aborted("a response takes '" + handle.name() + "' for another operation");
}

// What this rank has joined instead of submitting: it takes part without data of its own.
Status Member::TakePart(const Decision& decision, HandlePtr* handle) const {
  if (join_ == nullptr || !decision.partial) {
    return Status::Aborted("a response names '" + Shown(decision.name) +
                           "', which this rank has not announced");
  }
  if (!decision.error.empty()) return Status::Ok();  // of no concern here
  if (decision.known && decision.id < cache_.size()) {
    return MakeNeutralHandle(set_, cache_.At(decision.id), decision.ordinal, handle);
  }
  if (decision.request) {
    HVD_RETURN_IF_ERROR(CheckNew(*decision.request, decision.ordinal));
    return MakeNeutralHandle(set_, *decision.request, decision.ordinal, handle);
  }
  return Status::Aborted(
      "a response names an operation without describing it to a rank that has joined");
}

Status Member::MatchOne(Decision decision, std::vector<Decided>* decided) {
  HandlePtr handle = Claim(decision);
  if (handle != nullptr && handle->decided) {
    return Status::Aborted("a response names '" + Shown(handle->name()) + "' a second time");
  }
  if (handle == nullptr) {
    HVD_RETURN_IF_ERROR(TakePart(decision, &handle));
  } else if (decision.error.empty()) {
    HVD_RETURN_IF_ERROR(CheckMeant(decision, *handle));
  }
  if (handle == nullptr) return Status::Ok();
  handle->decided = true;
  if (!decision.known && decision.id != kNoId) {
    HVD_RETURN_IF_ERROR(cache_.Learn(decision.id, handle->entry.request));
  }
  if (events_ != nullptr) events_->Phase(handle->id, kQueuePhase);
  decided->push_back({std::move(handle), decision.id, std::move(decision.sizes),
                      std::move(decision.error), decision.notice, decision.partial});
  return Status::Ok();
}

Status Member::MatchRun(const Decision& run, std::vector<Decided>* decided) {
  for (uint32_t i = 0; i < run.count; ++i) {
    Decision one;
    one.id = run.id + i;
    one.known = true;
    HVD_RETURN_IF_ERROR(MatchOne(std::move(one), decided));
  }
  return Status::Ok();
}

Status Member::Match(negotiate::Response response, std::vector<Decided>* decided) {
  if (response.number != ++responses_) {
    return Status::Aborted("response " + std::to_string(response.number) + " of process set " +
                           std::to_string(set_) + " came instead of response " +
                           std::to_string(responses_));
  }
  if (events_ != nullptr) events_->MarkCycle();
  // Of runs no more than this rank knows: the first id that it has not announced ends it all.
  decided->reserve(response.decisions.size() +
                   std::min<size_t>(OperationsIn(response), cache_.size()));
  for (Decision& decision : response.decisions) {
    const bool run = decision.count > 1;
    HVD_RETURN_IF_ERROR(run ? MatchRun(decision, decided) : MatchOne(std::move(decision), decided));
  }
  if (!response.last_joined.known()) return Status::Ok();
  if (join_ == nullptr)
    return Status::Aborted("a response ends a join that this rank has not begun");
  Decided& joined = decided->emplace_back();
  joined.handle = std::exchange(join_, nullptr);
  joined.handle->decided = true;
  if (events_ != nullptr) events_->Phase(joined.handle->id, kQueuePhase);
  joined.sizes = {response.last_joined.value()};
  return Status::Ok();
}

// What was announced and has no response yet, in the order of submission.
std::vector<HandlePtr> Member::Undecided() {
  std::vector<HandlePtr> handles = queue_->InFlight(set_);
  const auto other = [](const HandlePtr& handle) {
    return handle->announced == 0 || handle->decided;
  };
  handles.erase(std::remove_if(handles.begin(), handles.end(), other), handles.end());
  return handles;
}

void Member::Restart() {
  message_ = {};
  announced_ = urgent_ = urgent_sent_ = 0;
  by_id_.clear();
  unnamed_.clear();
  urged_ = nullptr;
}

Status Member::Follow(negotiate::Schedule schedule, uint64_t base) {
  HVD_RETURN_IF_ERROR(CheckSchedule(schedule));
  Restart();
  ++epochs_;
  for (const std::vector<negotiate::Slot>& batch : schedule.batches) {
    for (const negotiate::Slot& slot : batch) requests_.push_back(cache_.At(slot.id));
  }
  epoch_.emplace(std::move(schedule), cache_.size(), base);
  departs_ = join_ != nullptr;
  for (const HandlePtr& handle : Undecided()) Place(handle);
  return Status::Ok();
}

// Numbers from the sequencer size nothing before they fit what this rank knows.
Status Member::CheckSchedule(const negotiate::Schedule& schedule) const {
  for (const std::vector<negotiate::Slot>& batch : schedule.batches) {
    for (const negotiate::Slot& slot : batch) {
      if (slot.id < cache_.size() && cache_.At(slot.id).name.empty() == slot.unnamed) continue;
      return Status::Aborted("a schedule has an operation of id " + std::to_string(slot.id) +
                             ", which this rank does not know");
    }
  }
  return Status::Ok();
}

void Member::Leave() {
  epoch_.reset();
  requests_.clear();
  departs_ = false;
  AnnounceAgain();
}

void Member::Forget() {
  cache_.Clear();
  ++epochs_;
  AnnounceAgain();
}

void Member::AnnounceAgain() {
  const std::vector<HandlePtr> undecided = Undecided();
  Restart();
  for (const HandlePtr& handle : undecided) Announce(handle);
  message_.joins = join_ != nullptr;
}

}  // namespace hvd
