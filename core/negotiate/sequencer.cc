#include "negotiate/sequencer.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::negotiate {

namespace {

// What no sound rank announces: every rank has refused a tensor that is too large before. Empty:
// all is well. `request`: what the announcement means.
std::string Impossible(const Announcement& announcement, const Request& request) {
  for (const TensorMeta& tensor : announcement.request.tensors) {
    const bool scattered = request.kind == OpKind::kReducescatter && BytesPerRow(tensor) < 0;
    if (scattered || BytesOf(tensor) < 0) {
      return "announced a tensor of the impossible shape " + ToString(tensor.shape);
    }
  }
  const bool alltoall = request.kind == OpKind::kAlltoall;
  int64_t left = kMaxTensorBytes;
  for (size_t i = 0; i < announcement.sizes.size(); ++i) {
    if (!alltoall) left = kMaxTensorBytes;
    // How many tensors an alltoall has is answered later.
    const size_t tensor = alltoall ? 0 : i;
    const int64_t row = tensor < request.tensors.size() ? BytesPerRow(request.tensors[tensor]) : 0;
    if (row < 0) return "announced a tensor whose rows are impossibly large";
    // Rows without bytes are bounded, too: those of all members are added up.
    const int64_t least = std::max<int64_t>(row, 1);
    if (announcement.sizes[i] > left / least) {
      return "announced " + std::to_string(announcement.sizes[i]) +
             " rows, more than any memory holds";
    }
    left -= least * announcement.sizes[i];
  }
  return "";
}

}  // namespace

Sequencer::Sequencer(SequencerOptions options)
    : options_(std::move(options)),
      members_(options_.members.ranks().size()),
      cache_(options_.cache ? options_.cache_capacity : 0),
      lateness_(members_.size()),
      batch_(members_.size(),
             {options_.batch_bytes, options_.silence, options_.urgent_silence, options_.age}),
      learner_(options_.learning) {}

Status Sequencer::Announce(Position member, AnnounceMessage message, Micros now) {
  if (!member.known() || member.index() >= members_.size()) {
    return Status::Internal("no member " + std::to_string(member.value()) + " in this process set");
  }
  const size_t m = member.index();
  now_ = now;
  if (message.epoch < epoch_) return Status::Ok();
  if (message.epoch > epoch_) return Corrupt(m, "follows a schedule that there is not");
  if (message.urgent > members_[m].announced + message.announcements.size()) {
    return Corrupt(m, "is blocked on more operations than it has announced");
  }
  if (members_[m].joined && (message.joins || !message.announcements.empty())) {
    return Corrupt(m, "announced something after it had joined");
  }
  batch_.Urge(m, message.urgent);
  for (Announcement& announcement : message.announcements) {
    HVD_RETURN_IF_ERROR(AnnounceOne(m, &announcement, now));
    if (message.epoch < epoch_) return Status::Ok();  // it has made a schedule
  }
  if (message.joins) Join(m, now);
  return Status::Ok();
}

Status Sequencer::AnnounceOne(size_t member, Announcement* announcement, Micros now) {
  HVD_RETURN_IF_ERROR(Check(member, announcement));
  Tally* tally = TallyOf(*announcement);
  if (tally->index[member] != Tally::kAbsent) {
    return Corrupt(member, "announced '" + Shown(*names_[tally->name].text) + "' twice");
  }
  if (!tally->announced()) tally->since = tally->latest = now;
  const Micros since = std::exchange(tally->latest, now);
  if (!announcement->sizes.empty()) {
    tally->sizes.resize(members_.size());
    tally->sizes[member] = std::move(announcement->sizes);
  }
  tally->Add(member, ++members_[member].announced, VariantOf(tally, announcement));
  if (announcement->ordinal != 0) ++members_[member].ordinal;
  if (!tally->ready()) return Status::Ok();
  if (std::string* name = lateness_.Note(member, since, now)) *name = NameOf(*tally);
  Ready(tally, now);
  return Status::Ok();
}

// Whether these can be the bytes of a sound member; turns a full announcement of a known request
// into its id.
Status Sequencer::Check(size_t member, Announcement* announcement) const {
  const bool unnamed = announcement->ordinal != 0;
  if (announcement->id == kNoId) {
    if (unnamed != announcement->request.name.empty()) {
      return Corrupt(member, "announced both a name and an ordinal, or neither");
    }
    announcement->id = cache_.Find(announcement->request);
  } else if (announcement->id >= known_.size()) {
    return Corrupt(member, "announced the unknown id " + std::to_string(announcement->id));
  } else if (unnamed != (known_[announcement->id].name == kNoId)) {
    return Corrupt(
        member, "announced id " + std::to_string(announcement->id) + " with the wrong kind of key");
  }
  if (unnamed && announcement->ordinal != members_[member].ordinal + 1) {
    return Corrupt(member, "announced unnamed operation " + std::to_string(announcement->ordinal) +
                               " after " + std::to_string(members_[member].ordinal));
  }
  const Request& request =
      announcement->id == kNoId ? announcement->request : cache_.At(announcement->id);
  const size_t sizes = request.kind == OpKind::kAllgather  ? request.tensors.size()
                       : request.kind == OpKind::kAlltoall ? members_.size()
                                                           : 0;
  if (announcement->sizes.size() != sizes) {
    return Corrupt(member, "announced " + std::to_string(announcement->sizes.size()) +
                               " sizes instead of " + std::to_string(sizes) + " with an " +
                               hvd::Name(request.kind));
  }
  const std::string impossible = Impossible(*announcement, request);
  return impossible.empty() ? Status::Ok() : Corrupt(member, impossible);
}

Status Sequencer::Corrupt(size_t member, const std::string& what) const {
  return Status::Aborted("corrupt announcement: " + hvd::Name(RankOf(member)) + " " + what);
}

Tally* Sequencer::TallyOf(const Announcement& announcement) {
  if (announcement.ordinal != 0) return UnnamedTally(announcement.ordinal);
  if (announcement.id != kNoId) return NamedTally(known_[announcement.id].name);
  return NamedTally(NameOf(announcement.request.name));
}

Tally* Sequencer::NamedTally(uint32_t name) {
  if (names_[name].tally != nullptr) return names_[name].tally;
  Tally* tally = NewTally();
  tally->name = name;
  names_[name].tally = tally;
  return tally;
}

// Check saw that this member has counted up to here without a gap, so the tally exists or is the
// next one, and cannot have been decided.
Tally* Sequencer::UnnamedTally(uint64_t ordinal) {
  const uint64_t position = ordinal - unnamed_base_;
  if (position < unnamed_.size()) return unnamed_[position];
  Tally* tally = NewTally();
  tally->ordinal = ordinal;
  unnamed_.push_back(tally);
  return tally;
}

Tally* Sequencer::NewTally() {
  if (free_tallies_.empty()) free_tallies_.push_back(&tallies_.emplace_back(members_.size()));
  Tally* tally = free_tallies_.back();
  free_tallies_.pop_back();
  tally->count = joined_;
  return tally;
}

uint32_t Sequencer::NameOf(const std::string& text) {
  const auto found = name_of_.find(text);
  if (found != name_of_.end()) return found->second;
  if (free_names_.empty()) {
    free_names_.push_back(static_cast<uint32_t>(names_.size()));
    names_.emplace_back();
  }
  const uint32_t name = free_names_.back();
  free_names_.pop_back();
  names_[name] = Name{&name_of_.emplace(text, name).first->first, nullptr, false};
  return name;
}

size_t Sequencer::VariantOf(Tally* tally, Announcement* announcement) {
  std::vector<Tally::Variant>& variants = tally->variants;
  const bool known = announcement->id != kNoId;
  for (size_t v = 0; v < variants.size(); ++v) {
    if (known && variants[v].id == announcement->id) return v;
    if (known && variants[v].id != kNoId) continue;
    // An unnamed request may have got its id after this variant was announced in full.
    const Request& request = known ? cache_.At(announcement->id) : announcement->request;
    if (RequestOf(variants[v]).SameAs(request)) return v;
  }
  Tally::Variant& added = variants.emplace_back();
  added.id = announcement->id;
  if (!known) added.request = std::move(announcement->request);
  return variants.size() - 1;
}

const Request& Sequencer::RequestOf(const Tally::Variant& variant) const {
  return variant.id == kNoId ? variant.request : cache_.At(variant.id);
}

const Request& Sequencer::RequestIn(const Announcement& announcement) const {
  return announcement.id < cache_.size() ? cache_.At(announcement.id) : announcement.request;
}

std::string Sequencer::NameOf(const Tally& tally) const {
  if (tally.ordinal == 0) return *names_[tally.name].text;
  return PublicName(RequestOf(tally.variants[0]).kind, tally.ordinal);
}

std::string Sequencer::TakeStraggler(Micros now) {
  const Lateness::Straggler* straggler = lateness_.Take(now);
  return straggler == nullptr ? "" : Describe(*straggler, RankOf(straggler->member));
}

std::vector<Unready> Sequencer::Pending() const {
  std::vector<Unready> pending;
  if (gated_) pending.push_back(*gated_);
  for (const Tally& tally : tallies_) {
    if (!tally.announced() || tally.ready()) continue;
    Unready& unready = pending.emplace_back();
    unready.kind = RequestOf(tally.variants[0]).kind;
    unready.name = NameOf(tally);
    unready.since = tally.since;
    for (size_t m = 0; m < members_.size(); ++m) {
      const bool absent = tally.index[m] == Tally::kAbsent;
      if (absent && members_[m].joined) continue;
      (absent ? unready.absent : unready.ready).push_back(RankOf(m));
    }
  }
  std::sort(pending.begin(), pending.end(), [](const Unready& a, const Unready& b) {
    return a.since != b.since ? a.since < b.since : a.name < b.name;
  });
  return pending;
}

}  // namespace hvd::negotiate
