// The part of a process set that follows a learned schedule: its members vote at a gate before each
// batch, and neither announce nor hear what comes next, until one of them votes that it cannot go
// on. Then all leave the schedule at the same gate.

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

// A rank that waits at a gate for so long says so, for the report of stalls.
constexpr Micros kTellsAfter = 1'000'000;

}  // namespace

Status ProcessSet::BeginSchedule(negotiate::Schedule schedule, const Policy& policy, Micros now) {
  if (gate_ == nullptr) return Status::Aborted("a response has a schedule that nobody can follow");
  HVD_RETURN_IF_ERROR(member_.Follow(std::move(schedule)));
  if (root() != nullptr) BeginReview();
  at_gate_ = {};
  at_gate_.policy = policy;
  at_gate_.quiet_since = at_gate_.voted = now;
  for (const std::vector<negotiate::Slot>& batch : member_.follower()->schedule().batches)
    at_gate_.payloads.push_back(PayloadOf(batch));
  ExpectPayload();
  return Status::Ok();
}

// What each vote for a batch carries; 0: it is too large, or of a kind that has to travel itself.
// Then every rank computes it whole, which it may have been told not to.
size_t ProcessSet::PayloadOf(const std::vector<negotiate::Slot>& batch) const {
  size_t most = gate_->most_payload();
  if (at_gate_.policy.direct_bytes >= 0)
    most = std::min(most, static_cast<size_t>(at_gate_.policy.direct_bytes));
  size_t bytes = 0;
  for (const negotiate::Slot& slot : batch) {
    const negotiate::Request& request = member_.RequestOf(slot.id);
    if (!executor_.TakesGathered(request)) return 0;
    bytes += PayloadBytes(request);
    if (bytes > most) return 0;
  }
  return bytes;
}

void ProcessSet::ExpectPayload() {
  at_gate_.payload_bytes = at_gate_.payloads[member_.follower()->next_batch()];
  gate_->Expect(at_gate_.payload_bytes);
}

// Whether this rank has submitted all of the next batch. A vote that carries data reads them, so
// what comes before the batch and writes there has to end first.
bool ProcessSet::MayVote() const {
  const Follower& follower = *member_.follower();
  if (!follower.Ready() || at_gate_.payload_bytes == 0) return follower.Ready();
  bool readable = true;
  follower.ForEachOfNext(
      [&](const Handle& handle) { readable = readable && !executor_.WritesToInputOf(handle); });
  return readable;
}

// A batch with nothing to carry has no bytes to read.
void ProcessSet::Vote(bool may_run) {
  if (may_run && at_gate_.payload_bytes > 0)
    Pack(*member_.follower(), at_gate_.payload_bytes, &payload_);
  gate_->Vote(may_run, payload_.data());
}

// Passes as many gates as it can.
Status ProcessSet::Follow(Micros now, bool* moved) {
  for (;;) {
    const Gate::Verdict verdict = gate_->Look(moved);
    if (verdict == Gate::Verdict::kPoisoned) return LeaveSchedule(now, moved);
    if (!gate_->voted()) {
      const bool departs = Departs(now);
      if (!departs && !MayVote()) return Status::Ok();
      *moved = true;
      Vote(!departs);
      at_gate_.voted = now;
    } else if (verdict == Gate::Verdict::kPassed) {
      *moved = true;
      HVD_RETURN_IF_ERROR(RunScheduled(now));
    } else {
      TellWhereItWaits(now);
      return Status::Ok();
    }
  }
}

// Whether this rank's program does something else than the schedule says, or what no vote can
// carry.
bool ProcessSet::Departs(Micros now) {
  if (member_.departs()) return true;
  const Follower& follower = *member_.follower();
  if (review_.due() && follower.next_batch() == 0) return true;
  if (at_gate_.payload_bytes > 0 && follower.Ready() && ReadsItsOwnResults(follower)) return true;
  if (follower.Ready() || std::exchange(at_gate_.placed, follower.placed()) != follower.placed()) {
    at_gate_.quiet_since = now;
  }
  return Impatient() && now >= at_gate_.quiet_since + Patience();
}

bool ProcessSet::Impatient() const { return member_.follower()->pending() > 0; }

Micros ProcessSet::Patience() const { return member_.waits() ? kPatienceOfWaiter : kPatience; }

Micros ProcessSet::GateDeadline() const {
  if (member_.follower() == nullptr) return -1;
  if (gate_->voted()) return at_gate_.told ? -1 : at_gate_.voted + kTellsAfter;
  return Impatient() ? at_gate_.quiet_since + Patience() : -1;
}

Status ProcessSet::RunScheduled(Micros now) {
  std::vector<Decided> decided = member_.follower()->TakeBatch();
  const Gate::Last last = root() != nullptr ? gate_->last() : Gate::Last();
  if (last.member.known()) {
    std::string* name = root()->NoteLate(last.member, last.since_us, last.voted_us);
    if (name != nullptr) *name = decided.front().handle->name();
  }
  Count(counters_->gates);
  Count(counters_->scheduled, decided.size());
  at_gate_.quiet_since = now;
  at_gate_.told = false;
  if (events_ != nullptr) {
    events_->MarkCycle();
    for (const Decided& one : decided) events_->Phase(one.handle->id, kQueuePhase);
  }
  const Gate* carrier = at_gate_.payload_bytes > 0 ? gate_.get() : nullptr;
  HVD_RETURN_IF_ERROR(executor_.Add(std::move(decided), at_gate_.policy, carrier));
  gate_->Advance();
  ExpectPayload();
  if (root() != nullptr) review_.Passed(member_.follower()->Ready());
  return Status::Ok();
}

void ProcessSet::BeginReview() {
  std::vector<int64_t> bytes;
  for (const std::vector<negotiate::Slot>& batch : member_.follower()->schedule().batches) {
    int64_t& of_batch = bytes.emplace_back(0);
    for (const negotiate::Slot& slot : batch)
      of_batch += negotiate::BytesOf(member_.RequestOf(slot.id));
  }
  review_.Begin(std::move(bytes), options_.sequencer.batch_bytes);
}

Status ProcessSet::LeaveSchedule(Micros now, bool* moved) {
  *moved = true;
  if (!gate_->voted()) Vote(false);
  gate_->Advance();
  Count(counters_->schedules_left);
  const uint64_t batches = member_.follower()->batches();
  const uint64_t unnamed = member_.follower()->unnamed();
  member_.Leave();
  node_->Resume(batches, unnamed);
  for (auto& [child, message] : std::exchange(early_, {})) {
    HVD_RETURN_IF_ERROR(TakeIn(child, std::move(message), now));
  }
  return Status::Ok();
}

void ProcessSet::TellWhereItWaits(Micros now) {
  if (at_gate_.told || now < at_gate_.voted + kTellsAfter) return;
  at_gate_.told = true;
  AnnounceMessage message;
  message.epoch = member_.epoch();
  message.waits_at = gate_->number();
  (void)node_->Announce(kSelf, std::move(message), now);  // cannot fail: it is sound
}

std::vector<negotiate::Unready> ProcessSet::Pending(Micros now) const {
  const Follower* follower = member_.follower();
  if (follower == nullptr) return root()->Pending(now);
  auto gated =
      root()->Gated(gate_->number(), member_.RequestOf(follower->NextId()), follower->unnamed());
  return gated ? std::vector{*std::move(gated)} : std::vector<negotiate::Unready>();
}

}  // namespace hvd
