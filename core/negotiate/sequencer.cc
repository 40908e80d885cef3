#include "negotiate/sequencer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "negotiate/agreement.h"

namespace hvd::negotiate {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

int64_t SaturatingAdd(int64_t a, int64_t b) { return a > kHuge - b ? kHuge : a + b; }
int64_t SaturatingMul(int64_t a, int64_t b) { return b != 0 && a > kHuge / b ? kHuge : a * b; }

}  // namespace

Sequencer::Sequencer(const SequencerOptions& options, ResponseCache* cache)
    : members_(options.members),
      cache_(cache),
      batch_({options.batch_bytes, options.silence, options.urgent_silence, options.age}) {}

void Sequencer::Hear(AnnounceMessage message, Micros now) {
  now_ = now;
  joined_.Add(message.joined);
  batch_.Urge(message.some_urgent, message.all_urgent);
  for (Announcement& announcement : message.announcements) Ready(std::move(announcement), now);
  if (!message.joins) return;
  Close();
  closed_.back().last_joined = members_[message.last];
  joined_ = {};
}

std::optional<Response> Sequencer::Next(Micros now) {
  now_ = now;
  if (closed_.empty() && batch_.Closed(now)) Close();
  if (closed_.empty()) return std::nullopt;
  std::optional<Response> response(std::move(closed_.front()));
  closed_.pop_front();
  return response;
}

void Sequencer::Ready(Announcement announcement, Micros now) {
  if (!IsRun(announcement)) return ReadyOne(std::move(announcement), now);
  if (joined_.empty()) return ReadyRun(announcement, now);
  const uint32_t end = announcement.id + std::exchange(announcement.count, 1);
  for (; announcement.id < end; ++announcement.id) ReadyOne(announcement, now);
}

// Nothing is to be decided but where batches end.
void Sequencer::ReadyRun(const Announcement& run, Micros now) {
  NoteLateness(run, now);
  for (uint32_t id = run.id; id < run.id + run.count; ++id) {
    if (!Extend(id, &decisions_)) {
      Decision& decision = decisions_.emplace_back();
      decision.id = id;
      decision.known = true;
    }
    batch_.Add(bytes_of_[id], now);
    if (batch_.Full()) Close();
  }
}

void Sequencer::ReadyOne(Announcement announcement, Micros now) {
  if (decisions_.empty()) decisions_.reserve(usual_decisions_);
  Decision& decision = decisions_.emplace_back();
  decision.ordinal = announcement.ordinal;
  decision.partial = Partial(announcement);
  Agree(&announcement, &decision);
  const bool failed = !decision.error.empty();
  if (!decision.known && decision.ordinal == 0) decision.name = RequestOf(announcement).name;
  const int64_t bytes = failed ? 0 : ResultBytes(announcement, decision);
  NoteLateness(announcement, now);
  if (decision.partial && !decision.known && !failed)
    decision.request = std::move(announcement.request);
  batch_.Add(bytes, now);
  if (failed || batch_.Full()) Close();
}

// Of a run once: the others of it were waited for at the same time.
void Sequencer::NoteLateness(const Announcement& announcement, Micros now) {
  if (!announcement.last.known()) return;
  std::string* name = lateness_.Note(announcement.last, now - announcement.waited, now);
  if (name == nullptr) return;
  const uint64_t ordinal = announcement.ordinal;
  const Request request = RequestOf(announcement);
  *name = ordinal == 0 ? request.name : PublicName(request.kind, ordinal);
}

void Sequencer::Agree(Announcement* announcement, Decision* decision) {
  std::vector<Variant>& variants = announcement->variants;
  decision->notice = NoticeIn(*announcement);
  if (decision->notice != 0) {
    decision->error = "a rank has sent a notice in its place";
  } else if (variants.size() > 1) {
    decision->error = Disagree(*announcement);
  }
  if (!variants.empty()) {  // a single one, or whose name it has
    announcement->id = variants[0].id;
    announcement->request = std::move(variants[0].request);
  }
  // An id is given only to what has passed here.
  if (decision->error.empty() && announcement->id == kNoId)
    decision->error = Objection(announcement->request, announcement->ordinal, members_);
  if (decision->error.empty() && decision->partial) decision->error = JoinedRoot(*announcement);
  if (!decision->error.empty()) {
    decision->error.resize(std::min(decision->error.size(), kMaxErrorBytes));
    return;
  }
  decision->sizes = std::move(announcement->sizes);
  if (announcement->id == kNoId) return GiveId(*announcement, decision);
  decision->id = announcement->id;
  decision->known = true;
}

// What is in the notices that members have sent, if any has; see Request.
uint8_t Sequencer::NoticeIn(const Announcement& announcement) const {
  uint8_t told = announcement.request.notice;
  for (const Variant& variant : announcement.variants)
    told |= variant.request.notice != 0 ? variant.request.notice : kNoNotice;
  return told == kNoNotice ? 0 : told;
}

// Whether some have joined instead of announcing it.
bool Sequencer::Partial(const Announcement& announcement) const {
  if (announcement.variants.empty()) return !joined_.empty();
  int senders = 0;
  for (const Variant& variant : announcement.variants) senders += variant.senders.size();
  return senders < members_.size();
}

// Why a partial operation cannot run for want of its root; empty when it can.
std::string Sequencer::JoinedRoot(const Announcement& announcement) const {
  const Request request = RequestOf(announcement);
  if (request.kind != OpKind::kBroadcast) return "";
  const Position root = members_.Find(request.root);
  const std::vector<Variant>& variants = announcement.variants;
  const bool sent = variants.empty() ? !joined_.Has(root) : variants[0].senders.Has(root);
  return sent ? "" : RootHasJoined(request, announcement.ordinal);
}

std::string Sequencer::Disagree(const Announcement& announcement) const {
  std::vector<Request> requests;
  for (const Variant& variant : announcement.variants)
    requests.push_back(variant.id == kNoId ? variant.request : cache_->At(variant.id));
  std::vector<Sent> sent;
  for (size_t v = 0; v < requests.size(); ++v)
    sent.push_back({&requests[v], announcement.variants[v].senders.RanksIn(members_)});
  return Disagreement(std::move(sent), announcement.ordinal);
}

void Sequencer::GiveId(const Announcement& announcement, Decision* decision) {
  // Of several unnamed operations of one description, announced before any was decided, the first
  // gets the id.
  decision->id = cache_->Find(announcement.request);
  decision->known = decision->id != kNoId;
  if (decision->known || cache_->capacity() == 0) return;
  if (cache_->size() >= cache_->capacity()) {
    ++without_id_;
    return;
  }
  decision->id = static_cast<uint32_t>(cache_->size());
  bytes_of_.push_back(BytesOf(announcement.request));
  // Cannot fail: unknown, the next id, and below the capacity.
  (void)cache_->Learn(decision->id, announcement.request);
}

void Sequencer::Forget() {
  batch_.Restart();
  cache_->Clear();
  bytes_of_.clear();
  without_id_ = 0;
}

// What one member's result takes; of an alltoall, of which that is not known, what one member sent
// the first time.
int64_t Sequencer::ResultBytes(const Announcement& announcement, const Decision& decision) const {
  if (decision.sizes.empty()) {
    return decision.id == kNoId ? BytesOf(announcement.request) : bytes_of_[decision.id];
  }
  const Request request = RequestOf(announcement);
  const auto n = static_cast<size_t>(members_.size());
  int64_t bytes = 0;
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    const int64_t row = BytesPerRow(request.tensors[t]);
    for (size_t m = 0; m < n; ++m) {
      bytes = SaturatingAdd(bytes, SaturatingMul(row, decision.sizes[t * n + m]));
    }
  }
  return bytes;
}

void Sequencer::Close() {
  batch_.Clear();
  usual_decisions_ = decisions_.size();
  closed_.push_back({++number_, std::move(decisions_), {}, {}, false});
  decisions_.clear();
}

std::string Sequencer::TakeStraggler(Micros now) {
  const Lateness::Straggler* straggler = lateness_.Take(now);
  return straggler == nullptr ? "" : Describe(*straggler, members_[straggler->member]);
}

}  // namespace hvd::negotiate
