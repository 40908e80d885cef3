// Whether the bytes of a child can be those of a sound one.

#include <algorithm>

#include "base/text.h"
#include "negotiate/merge/merger.h"

namespace hvd::negotiate {
namespace {

// What no sound rank announces: every rank has refused a tensor that is too large before. Empty:
// all is well.
std::string ImpossibleShape(const Request& request) {
  for (const TensorMeta& tensor : request.tensors) {
    const bool by_row = request.kind == OpKind::kReducescatter || request.kind == OpKind::kAlltoall;
    if ((by_row && BytesPerRow(tensor) < 0) || BytesOf(tensor) < 0)
      return "announced a tensor of the impossible shape " + ToString(tensor.shape);
  }
  return "";
}

// Of an allgather, by tensor and member.
std::string ImpossibleSizes(const Request& request, const Shape& sizes, size_t members) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t row = BytesPerRow(request.tensors[i / members]);
    if (row < 0) return "announced a tensor whose rows are impossibly large";
    // Rows without bytes are bounded, too: those of all members are added up.
    if (sizes[i] > kMaxTensorBytes / std::max<int64_t>(row, 1))
      return "announced " + std::to_string(sizes[i]) + " rows, more than any memory holds";
  }
  return "";
}

}  // namespace

Status Merger::Corrupt(size_t child, const std::string& what) const {
  return Status::Aborted("corrupt announcement: " + hvd::Name(children_[child].rank) + " " + what);
}

Status Merger::Twice(size_t child, const Tally& tally) const {
  return Corrupt(child, "announced '" + Shown(tallies_.Text(tally.name)) + "' twice");
}

Status Merger::Check(size_t child, const AnnounceMessage& message) const {
  const Child& sender = children_[child];
  if (message.some_urgent > urgency_.Announced(child) + OperationsIn(message) ||
      message.all_urgent > message.some_urgent) {
    return Corrupt(child, "is blocked on more operations than it has announced");
  }
  const bool says = message.joins || !message.joined.empty() || !message.announcements.empty();
  if (sender.all_joined && says) return Corrupt(child, "announced something after it had joined");
  if (sender.IsMember()) {
    const bool merged = !message.joined.empty() || message.last.known() || message.waiting;
    return merged ? Corrupt(child, "speaks for others") : Status::Ok();
  }
  if (!sender.below.Without(sender.joined).Includes(message.joined))
    return Corrupt(child, "says of ranks that are not below it, or have joined, that they join");
  const int left = sender.below.size() - sender.joined.size() - message.joined.size();
  if (message.joins ? left > 0 || !sender.below.Has(message.last) : message.last.known())
    return Corrupt(child, "joins without all ranks that are below it");
  for (const Waiting& waiting : message.waiting ? *message.waiting : std::vector<Waiting>()) {
    if (!sender.below.Includes(waiting.ready) || (waiting.ordinal == 0) == waiting.name.empty())
      return Corrupt(child, "says of ranks that are not below it what they wait for");
  }
  return Status::Ok();
}

// Turns a full announcement of a known request into its id.
Status Merger::Check(size_t child, Announcement* announcement) const {
  const Child& sender = children_[child];
  const uint64_t ordinal = announcement->ordinal;
  if (announcement->variants.empty()) {
    HVD_RETURN_IF_ERROR(CheckDescription(child, ordinal, &announcement->id, announcement->request));
  } else {
    HVD_RETURN_IF_ERROR(CheckVariants(child, announcement));
  }
  if (ordinal != 0 && ordinal != sender.ordinal + 1) {
    return Corrupt(child, "announced unnamed operation " + std::to_string(ordinal) + " after " +
                              std::to_string(sender.ordinal));
  }
  HVD_RETURN_IF_ERROR(CheckLateness(child, *announcement));
  return CheckSizes(child, *announcement);
}

// Ends with the first id that is not known, however many there are.
Status Merger::CheckRun(size_t child, const Announcement& run) const {
  for (uint32_t id = run.id; id < run.id + run.count; ++id) {
    if (id >= name_of_id_.size() || name_of_id_[id] == kNoId)
      return CheckDescription(child, 0, &id, run.request);
    if (cache_.KindOf(id) != OpKind::kAllgather) continue;
    Announcement one;
    one.id = id;
    HVD_RETURN_IF_ERROR(CheckSizes(child, one));
  }
  return CheckLateness(child, run);
}

Status Merger::CheckLateness(size_t child, const Announcement& announcement) const {
  const Child& sender = children_[child];
  const bool late = announcement.last.known();
  if (late && (sender.IsMember() || !sender.below.Has(announcement.last)))
    return Corrupt(child, "waited for a rank that is not below it");
  return Status::Ok();
}

Status Merger::CheckDescription(size_t child, uint64_t ordinal, uint32_t* id,
                                const Request& request) const {
  const bool unnamed = ordinal != 0;
  if (*id == kNoId) {
    if (unnamed != request.name.empty())
      return Corrupt(child, "announced both a name and an ordinal, or neither");
    const uint32_t known = cache_.Find(request);
    if (known < name_of_id_.size()) *id = known;
  } else if (*id >= name_of_id_.size()) {
    return Corrupt(child, "announced the unknown id " + std::to_string(*id));
  } else if (unnamed != (name_of_id_[*id] == kNoId)) {
    return Corrupt(child, "announced id " + std::to_string(*id) + " with the wrong kind of key");
  }
  return Status::Ok();
}

// All describe one operation, and each that is below and has not joined sent one.
Status Merger::CheckVariants(size_t child, Announcement* announcement) const {
  const Child& sender = children_[child];
  if (sender.IsMember()) return Corrupt(child, "speaks for others");
  Positions senders;
  int sent = 0;
  std::string name;
  for (Variant& variant : announcement->variants) {
    HVD_RETURN_IF_ERROR(
        CheckDescription(child, announcement->ordinal, &variant.id, variant.request));
    const std::string own = RequestOf(variant.id, variant.request).name;
    if (&variant == &announcement->variants[0]) name = own;
    if (own != name) return Corrupt(child, "describes two operations as one");
    senders.Add(variant.senders);
    sent += variant.senders.size();
  }
  const bool all = senders.Includes(sender.below.Without(sender.joined));
  if (!all || sent != senders.size() || !sender.below.Includes(senders))
    return Corrupt(child, "does not say who sent what");
  return Status::Ok();
}

Status Merger::CheckSizes(size_t child, const Announcement& announcement) const {
  const bool varied = !announcement.variants.empty();
  const uint32_t id = varied ? announcement.variants[0].id : announcement.id;
  const Request& request = varied ? announcement.variants[0].request : announcement.request;
  const OpKind kind = id == kNoId ? request.kind : cache_.KindOf(id);
  const bool sized = kind == OpKind::kAllgather;
  if (id != kNoId && !sized && announcement.sizes.empty()) return Status::Ok();  // the usual case
  const Request meant = RequestOf(id, request);
  const auto below = static_cast<size_t>(children_[child].below.size());
  const bool differs = announcement.variants.size() > 1;
  const size_t expected = sized && !differs ? below * meant.tensors.size() : 0;
  if (announcement.sizes.size() != expected) {
    return Corrupt(child, "announced " + std::to_string(announcement.sizes.size()) +
                              " sizes instead of " + std::to_string(expected) + " with an " +
                              hvd::Name(kind));
  }
  std::string impossible;
  if (!varied && id == kNoId) impossible = ImpossibleShape(request);
  for (const Variant& variant : announcement.variants) {
    if (variant.id == kNoId && impossible.empty()) impossible = ImpossibleShape(variant.request);
  }
  if (impossible.empty()) impossible = ImpossibleSizes(meant, announcement.sizes, below);
  return impossible.empty() ? Status::Ok() : Corrupt(child, impossible);
}

}  // namespace hvd::negotiate
