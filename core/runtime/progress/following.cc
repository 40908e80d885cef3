// The part of a process set that follows a learned schedule: its members publish how many batches
// they are ready for, and neither announce nor hear what comes next, until one of them says its
// last word.

#include <algorithm>
#include <utility>

#include "runtime/progress/payload.h"
#include "runtime/progress/process_set.h"

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Micros;

namespace {

// For how long a rank may lack a part of the next batch while it submits nothing: its program waits
// for an operation, so that it will submit nothing more, or it may still compute. While somebody
// waits, a batch is not held open for longer when it is negotiated either; see SequencerOptions.
constexpr Micros kPatienceOfWaiter = 400;
constexpr Micros kPatience = 100'000;

// A rank that waits for the others for so long says so, for the report of stalls.
constexpr Micros kTellsAfter = 1'000'000;

}  // namespace

Status ProcessSet::BeginSchedule(negotiate::Schedule schedule, const Policy& policy, Micros now) {
  if (watermarks_ == nullptr)
    return Status::Aborted("a response has a schedule that nobody can follow");
  HVD_RETURN_IF_ERROR(member_.Follow(std::move(schedule), watermarks_->batches().base()));
  if (root() != nullptr) BeginReview();
  following_ = {};
  following_.policy = policy;
  following_.quiet_since = following_.waits_since = now;
  std::vector<size_t> payloads;
  for (const std::vector<negotiate::Slot>& batch : member_.epoch()->schedule().batches) {
    std::vector<negotiate::Request> requests;
    for (const negotiate::Slot& slot : batch) requests.push_back(member_.RequestOf(slot.id));
    payloads.push_back(PayloadOf(requests));
    following_.batches.push_back(executor_.Plan(requests, policy));
  }
  watermarks_->Begin(std::move(payloads));
  return Status::Ok();
}

// What each mark carries of a batch; 0: it is too large, or of a kind that has to travel itself.
// Then every rank computes it whole, which it may have been told not to.
size_t ProcessSet::PayloadOf(const std::vector<negotiate::Request>& batch) const {
  size_t most = watermarks_->most_payload();
  if (following_.policy.direct_bytes >= 0)
    most = std::min(most, static_cast<size_t>(following_.policy.direct_bytes));
  size_t bytes = 0;
  for (const negotiate::Request& request : batch) {
    if (!executor_.TakesGathered(request)) return 0;
    bytes += PayloadBytes(request);
    if (bytes > most) return 0;
  }
  return bytes;
}

// Runs as many batches as it can.
Status ProcessSet::Follow(Micros now, bool* moved) {
  for (;;) {
    *moved |= Publish(now);
    watermarks_->Look(moved);
    const bool runs = watermarks_->all().ready > member_.epoch()->passed();
    if (!runs && watermarks_->all().over()) return LeaveSchedule(now, moved);
    if (!runs) break;
    *moved = true;
    HVD_RETURN_IF_ERROR(RunScheduled(now));
  }
  TellWhereItWaits(now);
  return Status::Ok();
}

// What this rank is ready for, or that it goes no further. False: nothing is new.
bool ProcessSet::Publish(Micros now) {
  if (watermarks_->own().ended()) return false;
  if (Departs(now)) {
    watermarks_->End();
    return true;
  }
  const Epoch& epoch = *member_.epoch();
  const uint64_t published = watermarks_->own().ready;
  if (epoch.complete() == published) return false;
  const negotiate::Batches& batches = watermarks_->batches();
  const uint64_t ready = std::min(epoch.complete(), batches.Reach(epoch.passed()));
  if (ready == published) return false;
  const size_t payload = batches.PayloadOf(ready);
  if (payload > 0 && !MayRead()) return false;
  if (payload > 0) Pack(epoch, payload, watermarks_->Room(ready));
  if (published == epoch.passed()) following_.waits_since = now;
  watermarks_->Publish(ready, now);
  return true;
}

// A mark that carries data reads them, so what comes before the batch and writes there has to end
// first.
bool ProcessSet::MayRead() const {
  bool readable = true;
  member_.epoch()->ForEachOfNext(
      [&](const HandlePtr& handle) { readable = readable && !executor_.WritesToInputOf(*handle); });
  return readable;
}

// Whether this rank's program does something else than the schedule says, or what no mark can
// carry.
bool ProcessSet::Departs(Micros now) {
  if (member_.departs()) return true;
  const Epoch& epoch = *member_.epoch();
  const uint64_t published = watermarks_->own().ready;
  if (review_.due() && epoch.EndsStep(published)) return true;
  if (published > epoch.passed()) return false;
  const bool carries = epoch.Ready() && watermarks_->batches().PayloadOf(epoch.passed() + 1) > 0;
  return (carries && ReadsItsOwnResults(epoch)) || Impatient(now);
}

// Whether it has waited for long enough for the rest of the next batch.
bool ProcessSet::Impatient(Micros now) {
  const Epoch& epoch = *member_.epoch();
  const bool fills = std::exchange(following_.filled, epoch.filled()) != epoch.filled();
  if (epoch.Ready() || fills) following_.quiet_since = now;
  return epoch.pending() > 0 && now >= following_.quiet_since + Patience();
}

Micros ProcessSet::Patience() const { return member_.waits() ? kPatienceOfWaiter : kPatience; }

Micros ProcessSet::ScheduleDeadline() const {
  const Epoch* epoch = member_.epoch();
  if (epoch == nullptr) return -1;
  if (watermarks_->own().ready > epoch->passed())
    return following_.told ? -1 : following_.waits_since + kTellsAfter;
  return epoch->pending() > 0 ? following_.quiet_since + Patience() : -1;
}

// The batches that all members are ready for.
Status ProcessSet::RunScheduled(Micros now) {
  const Epoch& epoch = *member_.epoch();
  NoteLate();
  following_.quiet_since = following_.waits_since = now;
  following_.told = false;
  while (epoch.passed() < watermarks_->all().ready) {
    const bool carried = watermarks_->batches().PayloadOf(epoch.passed() + 1) > 0;
    Executor::PlannedBatch& planned = following_.batches[epoch.next_batch()];
    Count(counters_->gates);
    Count(counters_->scheduled, epoch.next().size());
    if (events_ != nullptr) TraceNext();
    if (planned.empty()) {
      HVD_RETURN_IF_ERROR(executor_.Add(member_.TakeBatch(), following_.policy));
    } else {
      member_.TakeBatch(&batch_);
      Watermarks* const carrier = carried ? watermarks_.get() : nullptr;
      HVD_RETURN_IF_ERROR(executor_.AddPlanned(batch_, carrier, &planned));
      batch_.clear();
    }
    if (root() != nullptr) review_.Passed(epoch.Ready());
  }
  return Status::Ok();
}

void ProcessSet::TraceNext() const {
  events_->MarkCycle();
  member_.epoch()->ForEachOfNext(
      [this](const HandlePtr& handle) { events_->Phase(handle->id, kQueuePhase); });
}

void ProcessSet::NoteLate() {
  const Watermarks::Last last = root() == nullptr ? Watermarks::Last() : watermarks_->last();
  if (!last.member.known()) return;
  std::string* name = root()->NoteLate(last.member, last.since_us, last.published_us);
  if (name == nullptr) return;
  const auto& epoch = *member_.epoch();
  *name = root()->NameOf(member_.RequestOf(epoch.next().front().id), epoch.unnamed());
}

void ProcessSet::BeginReview() {
  std::vector<int64_t> bytes;
  for (const std::vector<negotiate::Slot>& batch : member_.epoch()->schedule().batches) {
    int64_t& of_batch = bytes.emplace_back(0);
    for (const negotiate::Slot& slot : batch)
      of_batch += negotiate::BytesOf(member_.RequestOf(slot.id));
  }
  review_.Begin(std::move(bytes), options_.sequencer.batch_bytes);
}

Status ProcessSet::LeaveSchedule(Micros now, bool* moved) {
  *moved = true;
  Count(counters_->schedules_left);
  const uint64_t passed = member_.epoch()->passed();
  const uint64_t batches = passed - watermarks_->batches().base();
  const uint64_t unnamed = member_.epoch()->unnamed();
  watermarks_->Leave(passed);
  member_.Leave();
  node_->Resume(batches, unnamed);
  for (auto& [child, message] : std::exchange(early_, {})) {
    HVD_RETURN_IF_ERROR(TakeIn(child, std::move(message), now));
  }
  return Status::Ok();
}

void ProcessSet::TellWhereItWaits(Micros now) {
  const uint64_t passed = member_.epoch()->passed();
  const bool waits = watermarks_->own().ready > passed;
  if (!waits || following_.told || now < following_.waits_since + kTellsAfter) return;
  following_.told = true;
  AnnounceMessage message;
  message.epoch = member_.epochs();
  message.waits_for = passed + 1;
  (void)node_->Announce(kSelf, std::move(message), now);  // cannot fail: it is sound
}

std::vector<negotiate::Unready> ProcessSet::Pending(Micros now) const {
  const Epoch* epoch = member_.epoch();
  if (epoch == nullptr) return root()->Pending(now);
  auto unready = root()->WaitedFor(epoch->passed() + 1, member_.RequestOf(epoch->next().front().id),
                                   epoch->unnamed());
  return unready ? std::vector{*std::move(unready)} : std::vector<negotiate::Unready>();
}

}  // namespace hvd
