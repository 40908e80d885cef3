// The half of the sequencer that turns complete tallies into numbered responses.

#include <algorithm>
#include <limits>
#include <utility>

#include "negotiate/agreement.h"
#include "negotiate/sequencer.h"

namespace hvd::negotiate {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

int64_t SaturatingAdd(int64_t a, int64_t b) { return a > kHuge - b ? kHuge : a + b; }
int64_t SaturatingMul(int64_t a, int64_t b) { return b != 0 && a > kHuge / b ? kHuge : a * b; }

}  // namespace

std::optional<Response> Sequencer::Next(Micros now) {
  now_ = now;
  if (closed_.empty() && batch_.Closed(now)) Close();
  if (closed_.empty()) return std::nullopt;
  std::optional<Response> response(std::move(closed_.front()));
  closed_.pop_front();
  return response;
}

Micros Sequencer::Deadline() const { return closed_.empty() ? batch_.Deadline() : now_; }

void Sequencer::Ready(Tally* tally, Micros now) {
  if (decisions_.empty()) decisions_.reserve(usual_decisions_);
  Decision& decision = decisions_.emplace_back();
  decided_.push_back(tally);
  decision.ordinal = tally->ordinal;
  decision.partial = Partial(*tally);
  Agree(tally, &decision);
  if (!decision.known && tally->ordinal == 0) decision.name = *names_[tally->name].text;
  const bool failed = !decision.error.empty();
  if (decision.partial && !decision.known && !failed)
    decision.request = RequestOf(tally->variants[0]);
  batch_.Add(*tally, failed ? 0 : ResultBytes(*tally, decision), now);
  if (failed || batch_.Full()) Close();
}

void Sequencer::Agree(Tally* tally, Decision* decision) {
  const Tally::Variant& first = tally->variants[0];
  if (tally->variants.size() > 1) {
    decision->error = Disagree(*tally);
  } else if (first.id == kNoId) {  // an id is given only to what has passed here
    decision->error = Objection(first.request, tally->ordinal, options_.members);
  }
  if (decision->error.empty() && decision->partial) decision->error = JoinedRoot(*tally);
  if (!decision->error.empty()) {
    decision->error.resize(std::min(decision->error.size(), kMaxErrorBytes));
    return;
  }
  GatherSizes(*tally, decision);
  if (first.id == kNoId) return GiveId(tally, decision);
  decision->id = first.id;
  decision->known = true;
}

std::string Sequencer::Disagree(const Tally& tally) const {
  std::vector<Sent> sent;
  for (const Tally::Variant& variant : tally.variants) sent.push_back({&RequestOf(variant), {}});
  for (size_t m = 0; m < members_.size(); ++m) {
    if (tally.index[m] == Tally::kAbsent) continue;
    sent[tally.variant_of[m]].ranks.push_back(RankOf(m));
  }
  return Disagreement(std::move(sent), tally.ordinal);
}

void Sequencer::GiveId(Tally* tally, Decision* decision) {
  Tally::Variant& only = tally->variants[0];
  // Of several unnamed operations of one description, announced before any was decided, the first
  // gets the id.
  decision->id = cache_.Find(only.request);
  decision->known = decision->id != kNoId;
  if (decision->known || known_.size() >= cache_.capacity()) return;
  decision->id = static_cast<uint32_t>(known_.size());
  known_.push_back({tally->name, BytesOf(only.request)});
  // Cannot fail: unknown, the next id, and below the capacity.
  (void)cache_.Learn(decision->id, std::move(only.request));
  only.id = decision->id;
  if (tally->name != kNoId) names_[tally->name].cached = true;
}

void Sequencer::GatherSizes(const Tally& tally, Decision* decision) const {
  if (tally.sizes.empty()) return;
  const Request& request = RequestOf(tally.variants[0]);
  const bool by_sender = request.kind == OpKind::kAlltoall;
  const size_t n = members_.size();
  const size_t each = by_sender ? n : request.tensors.size();
  decision->sizes.resize(n * each);
  for (size_t m = 0; m < n; ++m) {
    const Shape& sizes = tally.sizes[m];  // empty if it has joined
    for (size_t i = 0; i < sizes.size(); ++i)
      decision->sizes[by_sender ? m * n + i : i * n + m] = sizes[i];
  }
}

// What one member's result takes; of an alltoall the largest member's.
int64_t Sequencer::ResultBytes(const Tally& tally, const Decision& decision) const {
  if (decision.sizes.empty()) {
    return decision.id == kNoId ? BytesOf(tally.variants[0].request) : known_[decision.id].bytes;
  }
  const Request& request = RequestOf(tally.variants[0]);
  const size_t n = members_.size();
  if (request.kind == OpKind::kAlltoall) {
    std::vector<int64_t> received(n, 0);
    for (size_t i = 0; i < n * n; ++i)
      received[i % n] = SaturatingAdd(received[i % n], decision.sizes[i]);
    return SaturatingMul(BytesPerRow(request.tensors[0]),
                         *std::max_element(received.begin(), received.end()));
  }
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
  for (Tally* tally : decided_) Release(tally);
  decided_.clear();
  usual_decisions_ = decisions_.size();
  closed_.push_back({++number_, std::move(decisions_), {}, {}});
  decisions_.clear();
  if (learns_) NoteStep();
}

// What members have announced without that this sequencer knows, is void from here on.
void Sequencer::NoteStep() {
  Response& latest = closed_.back();
  latest.schedule = learner_.Note(latest, Quiet());
  if (latest.schedule.empty()) return;
  ++epoch_;
  batch_.Restart();
  for (Member& member : members_) member = {0, unnamed_base_ - 1, false};
}

void Sequencer::Resume(uint64_t batches, uint64_t unnamed) {
  learner_.Left(batches);
  unnamed_base_ += unnamed;
  for (Member& member : members_) member.ordinal += unnamed;
}

void Sequencer::Release(Tally* tally) {
  if (tally->ordinal != 0) {
    unnamed_[tally->ordinal - unnamed_base_] = nullptr;
    for (; !unnamed_.empty() && unnamed_.front() == nullptr; ++unnamed_base_) unnamed_.pop_front();
  } else if (Name& name = names_[tally->name]; name.cached) {
    name.tally = nullptr;
  } else {
    free_names_.push_back(tally->name);
    name_of_.erase(name_of_.find(*name.text));
  }
  tally->Reset();
  free_tallies_.push_back(tally);
}

}  // namespace hvd::negotiate
