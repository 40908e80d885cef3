#include "negotiate/merge/merger.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace hvd::negotiate {
namespace {

constexpr Micros kForEver = std::numeric_limits<Micros>::max();

bool IsEmpty(const AnnounceMessage& message) {
  return message.announcements.empty() && message.joined.empty() && !message.joins &&
         !message.waiting;
}

}  // namespace

Merger::Merger(MergerOptions options)
    : options_(std::move(options)),
      cache_(options_.cache_capacity),
      urgency_(options_.children.size()),
      merged_(1) {
  for (MergerOptions::Child& child : options_.children) {
    below_.Add(child.below);
    Child& added = children_.emplace_back();
    added.rank = child.rank;
    added.below = std::move(child.below);
  }
  options_.children.clear();
  for (Child& child : children_) {
    for (const Positions::Run& run : child.below.runs())
      child.places.push_back(below_.PlaceOf(Position(run.first)));
  }
}

Status Merger::Announce(size_t child, AnnounceMessage message, Micros now) {
  if (message.epoch < epoch_) return Status::Ok();
  if (message.epoch > epoch_) return Corrupt(child, "follows a schedule that there is not");
  if (message.waits_for != 0) return NoteWaiters(child, message, now);
  HVD_RETURN_IF_ERROR(Check(child, message));
  if (!message.joined.empty()) Joined(child, message.joined);
  urgency_.Urge(child, message.some_urgent, message.all_urgent);
  for (Announcement& announcement : message.announcements) {
    HVD_RETURN_IF_ERROR(AnnounceOne(child, &announcement, now));
  }
  if (message.joins) Join(child, message.last);
  if (options_.report_after > 0) {
    if (next_look_ < 0) next_look_ = now + options_.report_after;
    if (message.waiting) next_look_ = now;  // it has waited long enough
  }
  if (message.waiting) {
    children_[child].waiting = std::move(*message.waiting);
    children_[child].told = now;
  }
  return Status::Ok();
}

Status Merger::AnnounceOne(size_t child, Announcement* announcement, Micros now) {
  if (IsRun(*announcement)) return AnnounceRun(child, *announcement, now);
  HVD_RETURN_IF_ERROR(Check(child, announcement));
  Tally* tally = TallyOf(*announcement);
  if (urgency_.Has(child, tally->number)) return Twice(child, *tally);
  Describe(tally, child, announcement);
  if (!announcement->sizes.empty()) AddSizes(tally, children_[child], announcement->sizes);
  if (announcement->ordinal != 0) ++children_[child].ordinal;
  Note(child, *announcement, tally, now);
  return Status::Ok();
}

// The usual case, in which an operation costs nothing but what is counted.
Status Merger::AnnounceRun(size_t child, const Announcement& run, Micros now) {
  HVD_RETURN_IF_ERROR(CheckRun(child, run));
  for (uint32_t id = run.id; id < run.id + run.count; ++id) {
    Tally* tally = TallyOf(name_of_id_[id], 0);
    if (urgency_.Has(child, tally->number)) return Twice(child, *tally);
    if (tally->details == nullptr && (tally->latest < 0 || tally->id == id)) {
      tally->id = id;
    } else {
      Announcement one;
      one.id = id;
      Describe(tally, child, &one);
    }
    Note(child, run, tally, now);
  }
  return Status::Ok();
}

// Counts it.
void Merger::Note(size_t child, const Announcement& announcement, Tally* tally, Micros now) {
  urgency_.Announce(child, tally->number);
  const bool first = tally->latest < 0;
  if (first) tally->since = now;
  if (!children_[child].waiting.empty()) TakeOver(&children_[child], tally, now);
  const Micros since = std::exchange(tally->latest, now);
  if (++tally->count == children_.size())
    Complete(tally, LateIn(child, announcement, first ? kForEver : now - since));
}

// The check saw that this child has counted up to here without a gap, so an unnamed one's tally
// exists or is the next one, and cannot have been decided.
Tally* Merger::TallyOf(const Announcement& announcement) {
  const Variant* variant = announcement.variants.empty() ? nullptr : &announcement.variants[0];
  const uint32_t id = variant == nullptr ? announcement.id : variant->id;
  uint32_t name = kNoId;
  if (announcement.ordinal == 0 && id != kNoId) {
    name = name_of_id_[id];
  } else if (announcement.ordinal == 0) {
    name = tallies_.NameOf((variant == nullptr ? announcement.request : variant->request).name);
  }
  return TallyOf(name, announcement.ordinal);
}

Tally* Merger::TallyOf(uint32_t name, uint64_t ordinal) {
  Tally* tally = name == kNoId ? tallies_.Unnamed(ordinal) : tallies_.Named(name);
  if (tally != nullptr) return tally;
  tally = tallies_.Begin(name, ordinal);
  tally->count = all_joined_;
  urgency_.Open(tally->number);
  return tally;
}

// Adds what a child has sent to what the others sent.
void Merger::Describe(Tally* tally, size_t child, Announcement* announcement) {
  const bool usual = tally->details == nullptr && announcement->variants.empty();
  const bool first = tally->latest < 0;
  if (usual && announcement->id != kNoId && (first || tally->id == announcement->id)) {
    tally->id = announcement->id;
    return;
  }
  Tally::Details* details = DetailsOf(tally);
  if (!announcement->variants.empty()) {
    List(tally);
    for (Variant& variant : announcement->variants) {
      const size_t v = VariantOf(details, variant.id, &variant.request);
      details->variants[v].senders.Add(variant.senders);
    }
  } else {
    const size_t v = VariantOf(details, announcement->id, &announcement->request);
    if (v > 0) List(tally);
    const Child& sender = children_[child];
    if (details->listed) details->variants[v].senders.Add(sender.below.Without(sender.joined));
  }
  if (details->variants.size() > 1) details->sizes.clear();
}

Tally::Details* Merger::DetailsOf(Tally* tally) {
  if (tally->details == nullptr) {
    tally->details = std::make_unique<Tally::Details>();
    if (tally->latest >= 0) tally->details->variants.push_back({tally->id, {}, {}});
  }
  return tally->details.get();
}

size_t Merger::VariantOf(Tally::Details* details, uint32_t id, Request* request) const {
  std::vector<Variant>& variants = details->variants;
  for (size_t v = 0; v < variants.size(); ++v) {
    if (id != kNoId && variants[v].id == id) return v;
    if (id != kNoId && variants[v].id != kNoId) continue;
    // An unnamed request may have got its id after this variant was announced in full.
    if (RequestOf(variants[v].id, variants[v].request).SameAs(RequestOf(id, *request))) return v;
  }
  variants.push_back({id, {}, {}});
  if (id == kNoId) variants.back().request = std::move(*request);
  return variants.size() - 1;
}

// From here on the senders are listed: those so far are all below their children who had not
// joined.
void Merger::List(Tally* tally) {
  Tally::Details* details = DetailsOf(tally);
  if (std::exchange(details->listed, true)) return;
  for (size_t c = 0; c < children_.size(); ++c) {
    if (!urgency_.Has(c, tally->number)) continue;
    details->variants[0].senders.Add(children_[c].below.Without(children_[c].joined));
  }
}

void Merger::AddSizes(Tally* tally, const Child& child, const Shape& sizes) {
  Tally::Details* details = DetailsOf(tally);
  if (details->variants.empty()) details->variants.push_back({tally->id, {}, {}});
  if (details->variants.size() > 1) return;
  const auto each = static_cast<size_t>(child.below.size());
  const auto all = static_cast<size_t>(below_.size());
  details->sizes.resize(sizes.size() / each * all);
  const size_t tensors = sizes.size() / each;
  for (size_t r = 0; r < child.places.size(); ++r) {
    const Positions::Run& run = child.below.runs()[r];
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      const size_t from = tensor * each + static_cast<size_t>(run.before);
      const size_t to = tensor * all + static_cast<size_t>(child.places[r]);
      std::copy_n(sizes.begin() + static_cast<std::ptrdiff_t>(from), run.count,
                  details->sizes.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
}

// Whom the others waited for, and for how long: `others`, at least, is how long the other children
// did.
Merger::Late Merger::LateIn(size_t child, const Announcement& announcement, Micros others) const {
  const Child& sender = children_[child];
  Late late{Position(sender.below.runs()[0].first), others};
  if (!sender.IsMember()) late = {announcement.last, std::min(others, announcement.waited)};
  return late.waited < kToldLateness || late.waited == kForEver ? Late() : late;
}

void Merger::Complete(Tally* tally, const Late& late) {
  tally->complete = true;
  urgency_.Complete(tally->number);
  if (merged_.back().waiting) merged_.emplace_back();  // that is older news
  ForgetWaiting(*tally, &told_);
  std::vector<Announcement>& announcements = merged_.back().announcements;
  const bool usual = tally->details == nullptr && tally->ordinal == 0;
  if (usual && Extend(tally->id, late.last, late.waited, &announcements)) return;
  Announcement& out = announcements.emplace_back();
  out.ordinal = tally->ordinal;
  out.last = late.last;
  out.waited = late.waited;
  Tally::Details* details = tally->details.get();
  if (details == nullptr) {
    out.id = tally->id;
    return;
  }
  if (details->listed) {
    out.variants = details->variants;
  } else {
    out.id = details->variants[0].id;
    out.request = details->variants[0].request;
  }
  out.sizes = std::move(details->sizes);
}

bool Merger::Take(AnnounceMessage* merged) {
  if (TakeWaiters(merged)) return true;
  const bool urged = urgency_.some() != told_some_ || urgency_.all() != told_all_;
  if (merged_.size() == 1 && !urged && IsEmpty(merged_.front())) return false;
  *merged = std::move(merged_.front());
  merged_.pop_front();
  if (merged_.empty()) merged_.emplace_back();
  // The counts are those of all announcements: so they go with the last of these.
  if (merged_.size() == 1 && IsEmpty(merged_.front())) {
    told_some_ = urgency_.some();
    told_all_ = urgency_.all();
  }
  merged->some_urgent = told_some_;
  merged->all_urgent = told_all_;
  merged->epoch = epoch_;
  return true;
}

std::vector<Request> Merger::RequestsIn(const Announcement& announcement) const {
  const bool varied = !announcement.variants.empty();
  const uint32_t first = varied ? announcement.variants[0].id : announcement.id;
  if (first >= name_of_id_.size())
    return {varied ? announcement.variants[0].request : announcement.request};
  std::vector<Request> requests;
  const size_t known = name_of_id_.size() - first;
  for (uint32_t i = 0; i < std::min<size_t>(announcement.count, known); ++i)
    requests.push_back(cache_.At(first + i));
  return requests;
}

}  // namespace hvd::negotiate
