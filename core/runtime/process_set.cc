#include "runtime/process_set.h"

#include <algorithm>
#include <cstring>

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Micros;
using negotiate::Response;

namespace {

// A response travels behind the sequencer's fusion threshold: plans must be equal on all members
// whatever their own settings are.
struct Envelope {
  int64_t fusion_threshold;
};

std::string Seal(const Response& response, int64_t fusion_threshold) {
  const Envelope envelope{fusion_threshold};
  std::string bytes(reinterpret_cast<const char*>(&envelope), sizeof envelope);
  negotiate::Encode(response, &bytes);
  return bytes;
}

Status Open(std::string_view bytes, Envelope* envelope, Response* response) {
  if (bytes.size() < sizeof *envelope) return Status::Aborted("a response is too short");
  std::memcpy(envelope, bytes.data(), sizeof *envelope);
  return negotiate::Decode(bytes.substr(sizeof *envelope), response);
}

int PositionOf(const ProcessSetOptions& options) {
  const auto found = std::find(options.members.begin(), options.members.end(), options.rank);
  return static_cast<int>(found - options.members.begin());
}

}  // namespace

ProcessSet::ProcessSet(const ProcessSetOptions& options, ProcessSetWires wires, Queue* queue,
                       Counters* counters, EventSink* events)
    : options_(options),
      window_(std::move(wires.window)),
      control_(std::move(wires.control)),
      counters_(counters),
      member_(options.id, queue, counters, events),
      executor_(options.members, PositionOf(options), std::move(wires.backend), queue, counters, events) {
  if (options.rank != options.members.front()) return;
  negotiate::SequencerOptions sequencing = options.sequencer;
  sequencing.members = options.members;
  sequencing.cache = options.cache_capacity > 0;
  sequencing.cache_capacity = options.cache_capacity;
  sequencer_.emplace(std::move(sequencing));
}

Status ProcessSet::Tick(Micros now, bool* moved) {
  HVD_RETURN_IF_ERROR(Announce(now, moved));
  HVD_RETURN_IF_ERROR(control_->Progress(moved));
  HVD_RETURN_IF_ERROR(sequencer_ ? Sequence(now, moved) : HearSequencer(moved));
  return executor_.Advance(moved);
}

Status ProcessSet::Announce(Micros now, bool* moved) {
  AnnounceMessage message;
  if (!member_.TakeMessage(&message)) return Status::Ok();
  *moved = true;
  if (sequencer_) return sequencer_->Announce(0, std::move(message), now);
  scratch_.clear();
  negotiate::Encode(message, &scratch_);
  control_->Announce(scratch_);
  Count(counters_->control_messages);
  return Status::Ok();
}

Status ProcessSet::Sequence(Micros now, bool* moved) {
  HVD_RETURN_IF_ERROR(HearMembers(now, moved));
  while (std::optional<Response> response = sequencer_->Next(now)) {
    *moved = true;
    if (options_.members.size() > 1) {
      control_->Publish(Seal(*response, options_.fusion_threshold));
      Count(counters_->control_messages);
    }
    HVD_RETURN_IF_ERROR(CarryOut(std::move(*response), options_.fusion_threshold));
  }
  return Status::Ok();
}

Status ProcessSet::HearMembers(Micros now, bool* moved) {
  const int size = static_cast<int>(options_.members.size());
  for (int member = 1; member < size; ++member) {
    while (control_->TakeAnnouncement(member, &scratch_)) {
      *moved = true;
      AnnounceMessage message;
      HVD_RETURN_IF_ERROR(negotiate::Decode(scratch_, &message));
      HVD_RETURN_IF_ERROR(sequencer_->Announce(member, std::move(message), now));
    }
  }
  return Status::Ok();
}

Status ProcessSet::HearSequencer(bool* moved) {
  while (control_->TakeResponse(&scratch_)) {
    *moved = true;
    Envelope envelope;
    Response response;
    HVD_RETURN_IF_ERROR(Open(scratch_, &envelope, &response));
    HVD_RETURN_IF_ERROR(CarryOut(std::move(response), envelope.fusion_threshold));
  }
  return Status::Ok();
}

Status ProcessSet::CarryOut(Response response, int64_t fusion_threshold) {
  Count(counters_->responses);
  std::vector<Decided> decided;
  HVD_RETURN_IF_ERROR(member_.Match(std::move(response), &decided));
  return executor_.Add(std::move(decided), fusion_threshold);
}

}  // namespace hvd
