#include "runtime/progress/process_set.h"

#include <algorithm>

#include "base/text.h"
#include "collective/transport_collectives.h"
#include "collective/window/board.h"
#include "settings/log.h"

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Micros;
using negotiate::Response;

namespace {

void Trace(uint32_t set, const std::vector<Decided>& decided) {
  for (const Decided& one : decided) {
    const negotiate::Request& request = one.handle->entry.request;
    const std::string name = request.name.empty() ? "unnamed" : "'" + Shown(request.name) + "'";
    Log(LogLevel::kTrace,
        std::string("process set ") + std::to_string(set) + ": " + Name(request.kind) + ' ' + name +
            ", " + std::to_string(negotiate::BytesOf(request)) + " bytes, in a batch of " +
            std::to_string(decided.size()) + (one.error.empty() ? "" : ": it runs nowhere"));
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
      executor_(options.members, options.members.Find(options.rank), std::move(wires.backends),
                waker, queue, counters, events),
      watermarks_(std::move(wires.watermarks)),
      place_(topology_.TreePlaceOf(options.members.Find(options.rank))) {
  negotiate::SequencerOptions sequencing = options.sequencer;
  sequencing.members = options.members;
  if (watermarks_ == nullptr || options.members.size() == 1) sequencing.learning.repeats = 0;
  node_ = std::make_unique<TreeNode>(sequencing, place_, control_.get(), counters);
  if (root() != nullptr) root()->SetPolicy(options.policy);
  if (root() != nullptr && options.autotune && options.members.size() > 1) StartTuning();
}

Status ProcessSet::Tick(Micros now, bool* moved) {
  const bool follows = member_.epoch() != nullptr;
  if (!follows) HVD_RETURN_IF_ERROR(Announce(now, moved));
  control_->Progress(moved);
  HVD_RETURN_IF_ERROR(HearChildren(now, moved));
  if (!follows) HVD_RETURN_IF_ERROR(HearResponses(now, moved));
  // A schedule that has just begun may have its first batch here. What others still say of one that
  // was left must not hold up what they say next.
  if (member_.epoch() != nullptr) {
    HVD_RETURN_IF_ERROR(Follow(now, moved));
  } else if (watermarks_ != nullptr) {
    watermarks_->Look(moved);
  }
  node_->Report(now, moved);
  if (control_->corrupt().known()) {
    return Refuse(control_->corrupt(),
                  Status::Aborted("its stream of control messages is out of step"));
  }
  if (watermarks_ != nullptr && watermarks_->corrupt().known()) {
    return Refuse(watermarks_->corrupt(), Status::Aborted("its watermark cannot be right"));
  }
  const Status advanced = executor_.Advance(moved);
  if (!advanced.ok()) return executor_.culprit().known() ? RefuseWords(advanced) : advanced;
  return executor_.broken() ? SharedMemoryIsCorrupt("a counter of an operation cannot be right")
                            : Status::Ok();
}

Status ProcessSet::Announce(Micros now, bool* moved) {
  AnnounceMessage message;
  if (!member_.TakeMessage(&message)) return Status::Ok();
  *moved = true;
  if (events_ != nullptr) TraceReady(message, kSelf);
  return node_->Announce(kSelf, std::move(message), now);
}

Status ProcessSet::HearChildren(Micros now, bool* moved) {
  for (size_t child = kSelf + 1; child < place_.children.size(); ++child) {
    const Position at = place_.children[child].at;
    while (control_->Take(at, &scratch_)) {
      *moved = true;
      AnnounceMessage message;
      HVD_RETURN_IF_ERROR(Refuse(at, negotiate::Decode(scratch_, &message)));
      HVD_RETURN_IF_ERROR(TakeIn(child, std::move(message), now));
    }
  }
  return Status::Ok();
}

// While this rank follows a schedule, another may have left it.
Status ProcessSet::TakeIn(size_t child, AnnounceMessage message, Micros now) {
  const bool follows = member_.epoch() != nullptr && message.epoch == member_.epochs();
  if (follows && message.waits_for == 0) {
    early_.emplace_back(child, std::move(message));
    return Status::Ok();
  }
  if (events_ != nullptr) TraceReady(message, child);
  return Refuse(place_.children[child].at, node_->Announce(child, std::move(message), now));
}

// Adds to an error whose cause is what a neighbour in the tree has said (kAborted) who that was and
// what to do.
Status ProcessSet::Refuse(Position neighbour, const Status& why) {
  if (why.code() != Code::kAborted) return why;
  if (!topology_.ShareMemory(neighbour, options_.members.Find(options_.rank)))
    return RefuseSent(neighbour, why);
  return SharedMemoryIsCorrupt("what " + Name(options_.members[neighbour]) + " wrote there for " +
                               Name(options_.rank) + " cannot be right (" + why.message() + ")");
}

// Of a member that has said something impossible before an alltoall.
Status ProcessSet::RefuseWords(const Status& why) {
  return topology_.AllShareMemory() ? Refuse(executor_.culprit(), why)
                                    : RefuseSent(executor_.culprit(), why);
}

// It came over a link.
Status ProcessSet::RefuseSent(Position member, const Status& why) {
  const std::string sender = Name(options_.members[member]);
  const std::string receiver = Name(options_.rank);
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

// Of those below a child, all at once.
void ProcessSet::TraceReady(const AnnounceMessage& message, size_t child) const {
  const negotiate::Merger* merger = node_->merger();
  if (merger == nullptr || message.announcements.empty()) return;
  // What cannot be right is refused when it is taken in; its runs may name any id any number of
  // times.
  if (OperationsIn(message) > merger->known() + message.announcements.size()) return;
  const std::vector<GlobalRank> ranks = merger->below(child).RanksIn(options_.members);
  for (const negotiate::Announcement& announcement : message.announcements) {
    for (const negotiate::Request& request : merger->RequestsIn(announcement)) {
      for (const GlobalRank rank : ranks)
        events_->Ready(options_.id, request.kind, request.name, rank);
    }
  }
}

Status ProcessSet::HearResponses(Micros now, bool* moved) {
  for (;;) {
    std::optional<Response> response;
    Status status = node_->Next(now, &response);
    if (status.ok() && !response) return Status::Ok();
    *moved = true;
    if (!status.ok()) return place_.parent.known() ? Refuse(place_.parent, status) : status;
    HVD_RETURN_IF_ERROR(RefuseDecision(CarryOut(*std::move(response), now)));
  }
}

// What the parent has let pass may be wrong from the root on.
Status ProcessSet::RefuseDecision(const Status& why) {
  if (why.code() != Code::kAborted || !place_.parent.known()) return why;
  const Position self = options_.members.Find(options_.rank);
  const bool direct = place_.parent == kRoot || topology_.ShareMemory(place_.parent, self);
  if (direct) return Refuse(place_.parent, why);
  const std::string root = Name(options_.members[kRoot]);
  const std::string parent = Name(options_.members[place_.parent]);
  culprit_ = kUnknownRank;
  return Status::Aborted(root + " decided what cannot be right, or " + parent +
                         " passed it on to " + Name(options_.rank) +
                         " otherwise: " + why.message() +
                         ". Check that all ranks run the same version of horovod and that the "
                         "machines of " +
                         root + " and " + parent + " are sound, then restart the job.");
}

Status ProcessSet::CarryOut(Response response, Micros now) {
  Count(counters_->responses);
  std::vector<Decided> decided;
  negotiate::Schedule schedule = std::exchange(response.schedule, {});
  const bool forgets = response.forgets;
  const Policy policy = response.policy;
  HVD_RETURN_IF_ERROR(member_.Match(std::move(response), &decided));
  if (Logs(LogLevel::kTrace)) Trace(options_.id, decided);
  if (autotune_) Tune(decided, now);
  HVD_RETURN_IF_ERROR(executor_.Add(std::move(decided), policy));
  if (forgets) member_.Forget();
  if (schedule.empty()) return Status::Ok();
  return BeginSchedule(std::move(schedule), policy, now);
}

void ProcessSet::StartTuning() {
  const int size = options_.members.size();
  Tuned start;
  start.fusion_threshold = options_.policy.fusion_threshold;
  start.window_us = options_.autotune->longest_window_us;
  start.direct_bytes = topology_.AllShareMemory() ? Board::InlineBytes(size) : kDirectBytes;
  autotune_.emplace(*options_.autotune, start);
  root()->Learn(false);  // it measures responses
  UseTuned();
}

void ProcessSet::Tune(const std::vector<Decided>& decided, Micros now) {
  bool changed = false;
  for (const Decided& one : decided) {
    if (!one.error.empty()) continue;
    const bool named = one.handle->ordinal == 0;
    const uint32_t id = named ? one.id : negotiate::kNoId;
    changed |= autotune_->Add(id, negotiate::BytesOf(one.handle->entry.request), now);
  }
  counters_->autotune_samples.store(static_cast<uint64_t>(autotune_->samples()),
                                    std::memory_order_relaxed);
  if (changed) UseTuned();
  if (!autotune_->done()) return;
  autotune_.reset();
  root()->Learn(true);
}

// A batch closes when it fills one collective. Whoever is blocked never waits longer than without
// tuning.
void ProcessSet::UseTuned() {
  const Tuned& values = autotune_->values();
  root()->SetPolicy({values.fusion_threshold, values.direct_bytes});
  const negotiate::SequencerOptions& usual = options_.sequencer;
  const int64_t bytes = values.fusion_threshold > 0 ? values.fusion_threshold : usual.batch_bytes;
  root()->SetLimits(
      {bytes, values.window_us, std::min(values.window_us, usual.urgent_silence), usual.age});
}

}  // namespace hvd
