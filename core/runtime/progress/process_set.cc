#include "runtime/progress/process_set.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "collective/transport_collectives.h"
#include "collective/window/board.h"
#include "settings/log.h"

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Micros;
using negotiate::Response;

namespace {

constexpr Position kSequencer(0);

// A response travels behind the sequencer's policy: what follows from it must be equal on all
// members, whatever their own settings are, and from the same response on when it changes.
std::string Encode(const Response& response, const Policy& policy) {
  std::string bytes(reinterpret_cast<const char*>(&policy), sizeof policy);
  negotiate::Encode(response, &bytes);
  return bytes;
}

Status Decode(std::string_view bytes, Policy* policy, Response* response) {
  if (bytes.size() < sizeof *policy) return Status::Aborted("a response is too short");
  std::memcpy(policy, bytes.data(), sizeof *policy);
  return negotiate::Decode(bytes.substr(sizeof *policy), response);
}

void Trace(uint32_t set, const std::vector<Decided>& decided) {
  for (const Decided& one : decided) {
    const negotiate::Request& request = one.handle->entry.request;
    const std::string name = request.name.empty() ? "unnamed" : "'" + Shown(request.name) + "'";
    Log(LogLevel::kTrace, std::string("process set ") + std::to_string(set) + ": " +
                              Name(request.kind) + ' ' + name + ", " +
                              std::to_string(negotiate::BytesOf(request)) +
                              " bytes, in a batch of " + std::to_string(decided.size()) +
                              (one.decision.error.empty() ? "" : ": the ranks disagree"));
  }
}

}  // namespace

ProcessSet::ProcessSet(const ProcessSetOptions& options, ProcessSetWires wires, const Waker& waker,
                       Queue* queue, Counters* counters, EventSink* events)
    : options_(options),
      topology_(std::move(wires.topology)),
      window_(std::move(wires.window)),
      control_(std::move(wires.control)),
      counters_(counters),
      events_(events),
      member_(options.id, options.members, options.members.Find(options.rank), queue, counters,
              events),
      policy_{options.fusion_threshold, options.direct_bytes},
      executor_(options.members, options.members.Find(options.rank), std::move(wires.backends),
                waker, queue, counters, events),
      gate_(std::move(wires.gate)) {
  if (options.rank != options.members[kSequencer]) return;
  negotiate::SequencerOptions sequencing = options.sequencer;
  sequencing.members = options.members;
  sequencing.cache = options.cache_capacity > 0;
  sequencing.cache_capacity = options.cache_capacity;
  if (gate_ == nullptr || options.members.size() == 1) sequencing.learning.repeats = 0;
  sequencer_.emplace(std::move(sequencing));
  if (options.autotune && options.members.size() > 1) StartTuning();
}

Status ProcessSet::Tick(Micros now, bool* moved) {
  if (member_.follower() == nullptr) HVD_RETURN_IF_ERROR(Announce(now, moved));
  control_->Progress(moved);
  if (member_.follower() == nullptr) {
    HVD_RETURN_IF_ERROR(sequencer_ ? Sequence(now, moved) : HearSequencer(now, moved));
  }
  // A schedule that has just begun may have its first batch here.
  if (member_.follower() != nullptr) HVD_RETURN_IF_ERROR(Follow(now, moved));
  if (control_->corrupt().known()) {
    return Refuse(control_->corrupt(),
                  Status::Aborted("its stream of control messages is out of step"));
  }
  if (gate_ != nullptr && gate_->corrupt().known()) {
    return Refuse(gate_->corrupt(), Status::Aborted("its votes at a gate are out of step"));
  }
  HVD_RETURN_IF_ERROR(executor_.Advance(moved));
  return executor_.broken() ? SharedMemoryIsCorrupt("a counter of an operation cannot be right")
                            : Status::Ok();
}

Status ProcessSet::Announce(Micros now, bool* moved) {
  AnnounceMessage message;
  if (!member_.TakeMessage(&message)) return Status::Ok();
  *moved = true;
  if (sequencer_ && events_ != nullptr) TraceReady(message, kSequencer);
  if (sequencer_) return sequencer_->Announce(kSequencer, std::move(message), now);
  Send(message);
  return Status::Ok();
}

void ProcessSet::Send(const AnnounceMessage& message) {
  scratch_.clear();
  negotiate::Encode(message, &scratch_);
  control_->Announce(scratch_);
  Count(counters_->control_messages);
}

Status ProcessSet::Sequence(Micros now, bool* moved) {
  HVD_RETURN_IF_ERROR(HearMembers(now, moved));
  while (std::optional<Response> response = sequencer_->Next(now)) {
    *moved = true;
    const Policy policy = policy_;  // carrying out the response may change it
    if (options_.members.size() > 1) {
      control_->Publish(Encode(*response, policy));
      Count(counters_->control_messages);
    }
    HVD_RETURN_IF_ERROR(CarryOut(std::move(*response), policy, now));
  }
  return Status::Ok();
}

Status ProcessSet::HearMembers(Micros now, bool* moved) {
  const int size = options_.members.size();
  for (Position member = Next(kSequencer); member.value() < size; member = Next(member)) {
    while (control_->TakeAnnouncement(member, &scratch_)) {
      *moved = true;
      AnnounceMessage message;
      Status status = negotiate::Decode(scratch_, &message);
      HVD_RETURN_IF_ERROR(Refuse(member, status));
      HVD_RETURN_IF_ERROR(TakeIn(member, std::move(message), now));
    }
  }
  return Status::Ok();
}

// While this rank follows a schedule, another may have left it.
Status ProcessSet::TakeIn(Position member, AnnounceMessage message, Micros now) {
  if (message.waits_at != 0) {
    if (message.epoch == member_.epoch()) NoteWaiting(member, message.waits_at, now);
    return Status::Ok();
  }
  if (member_.follower() != nullptr && message.epoch == member_.epoch()) {
    early_.emplace_back(member, std::move(message));
    return Status::Ok();
  }
  if (events_ != nullptr) TraceReady(message, member);
  return Refuse(member, sequencer_->Announce(member, std::move(message), now));
}

// Adds to an error whose cause is what a member has sent (kAborted) who that was and what to do.
Status ProcessSet::Refuse(Position member, const Status& why) {
  if (why.code() != Code::kAborted) return why;
  const std::string sender = Name(options_.members[member]);
  const std::string receiver = Name(options_.rank);
  if (topology_.AllShareMemory()) {
    return SharedMemoryIsCorrupt("what " + sender + " wrote there for " + receiver +
                                 " cannot be right (" + why.message() + ")");
  }
  culprit_ = options_.members[member];
  return Status::Aborted(
      sender + " sent a message to " + receiver + " that cannot be right: " + why.message() +
      ". Check that all ranks run the same version of horovod and that the machine of " + sender +
      " is sound, then restart the job.");
}

// Names no culprit: whichever rank wrote out of bounds, the others find it in somebody else's part
// of it.
Status ProcessSet::SharedMemoryIsCorrupt(const std::string& detail) {
  culprit_ = kUnknownRank;
  return Status::Aborted(
      "the memory that the ranks of this host share is corrupt: " + detail +
      ". Any rank of the host may have overwritten it: look for native code that writes "
      "out of bounds, check the machine's memory, then restart the job.");
}

void ProcessSet::TraceReady(const AnnounceMessage& message, Position member) const {
  for (const negotiate::Announcement& announcement : message.announcements) {
    const negotiate::Request& request = sequencer_->RequestIn(announcement);
    events_->Ready(options_.id, request.kind, request.name, options_.members[member]);
  }
}

Status ProcessSet::HearSequencer(Micros now, bool* moved) {
  while (control_->TakeResponse(&scratch_)) {
    *moved = true;
    Policy policy;
    Response response;
    Status status = Decode(scratch_, &policy, &response);
    if (status.ok()) status = CarryOut(std::move(response), policy, now);
    HVD_RETURN_IF_ERROR(Refuse(kSequencer, status));
  }
  return Status::Ok();
}

Status ProcessSet::CarryOut(Response response, const Policy& policy, Micros now) {
  Count(counters_->responses);
  std::vector<Decided> decided;
  negotiate::Schedule schedule = std::exchange(response.schedule, {});
  HVD_RETURN_IF_ERROR(member_.Match(std::move(response), &decided));
  if (Logs(LogLevel::kTrace)) Trace(options_.id, decided);
  if (autotune_) Tune(decided, now);
  HVD_RETURN_IF_ERROR(executor_.Add(std::move(decided), policy));
  if (schedule.empty()) return Status::Ok();
  return BeginSchedule(std::move(schedule), policy, now);
}

void ProcessSet::StartTuning() {
  const int size = options_.members.size();
  Tuned start;
  start.fusion_threshold = options_.fusion_threshold;
  start.window_us = options_.autotune->longest_window_us;
  start.direct_bytes = topology_.AllShareMemory() ? Board::InlineBytes(size) : kDirectBytes;
  autotune_.emplace(*options_.autotune, start);
  sequencer_->Learn(false);  // it measures responses
  UseTuned();
}

void ProcessSet::Tune(const std::vector<Decided>& decided, Micros now) {
  bool changed = false;
  for (const Decided& one : decided) {
    if (!one.decision.error.empty()) continue;
    const bool named = one.handle->ordinal == 0;
    const uint32_t id = named ? one.decision.id : negotiate::kNoId;
    changed |= autotune_->Add(id, negotiate::BytesOf(one.handle->entry.request), now);
  }
  counters_->autotune_samples.store(static_cast<uint64_t>(autotune_->samples()),
                                    std::memory_order_relaxed);
  if (changed) UseTuned();
  if (!autotune_->done()) return;
  autotune_.reset();
  sequencer_->Learn(true);
}

// A batch closes when it fills one collective. Whoever is blocked never waits longer than without
// tuning.
void ProcessSet::UseTuned() {
  const Tuned& values = autotune_->values();
  policy_ = {values.fusion_threshold, values.direct_bytes};
  const negotiate::SequencerOptions& usual = options_.sequencer;
  const int64_t bytes = values.fusion_threshold > 0 ? values.fusion_threshold : usual.batch_bytes;
  sequencer_->SetLimits(
      {bytes, values.window_us, std::min(values.window_us, usual.urgent_silence), usual.age});
}

}  // namespace hvd
