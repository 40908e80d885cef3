#include "runtime/control/gossip.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hvd {

using negotiate::kNoEnd;
using negotiate::Marks;

namespace {

constexpr uint32_t kFirstChunk = 1;  // chunk 0 is the stream of control messages

}  // namespace

Gossip::Gossip(Transport* transport, uint32_t set, Members members, const std::vector<int>& weights,
               const negotiate::Batches* batches, std::array<std::byte*, 2> places)
    : transport_(transport),
      set_(set),
      members_(std::move(members)),
      position_(members_.Find(transport->rank())),
      batches_(batches),
      weights_(1, 0),
      places_(places) {
  for (int behind = 0; behind < members_.size(); ++behind)
    weights_.push_back(weights_.back() + static_cast<size_t>(weights[PositionAt(-behind).index()]));
}

void Gossip::Begin() {
  own_ = all_ = {batches_->base(), kNoEnd};
  follows_ = true;
  if (hops_.empty()) MakeHops();
  for (Hop& hop : hops_) {
    hop.heard = hop.told = own_;
    hop.in.Listen();
  }
}

void Gossip::MakeHops() {
  const size_t weight = WeightOf(members_.size());
  const size_t most = sizeof(Marks) + negotiate::MostPayload(weight) * weight;
  const bool few = members_.size() <= kFewMembers;
  for (int distance = 1; distance < members_.size(); distance = few ? distance + 1 : 2 * distance) {
    const int count = few ? 1 : std::min(distance, members_.size() - distance);
    const uint32_t chunk = kFirstChunk + static_cast<uint32_t>(distance);
    hops_.push_back({distance,
                     count,
                     {transport_, members_[PositionAt(distance)], set_, chunk},
                     {transport_, members_[PositionAt(-distance)], set_, chunk, most}});
  }
}

void Gossip::Tell(const Marks& own) {
  own_ = own;
  TellAll();
}

// What is said of an earlier schedule is of no use any more. Of the next one nobody says anything
// before all have left this one.
void Gossip::Look(bool* moved) {
  bool news = false;
  for (Hop& hop : hops_) {
    (void)hop.out.Reap();
    while (hop.in.arrived() && Hear(&hop, &news)) {
      (void)hop.in.Take();
      hop.in.Listen();
      *moved = true;  // what lies behind it on the link can come now
    }
  }
  if (news) TellAll();
}

// False: it is not to be taken yet, or never.
bool Gossip::Hear(Hop* hop, bool* news) {
  Marks said;
  const size_t bytes = hop->in.bytes();
  const bool whole = bytes >= sizeof said;
  if (whole) std::memcpy(&said, hop->in.data(), sizeof said);
  if (whole && said.ready < batches_->base()) return true;
  if (whole && !follows_) return false;
  if (whole && Take(hop, said, bytes - sizeof said)) return *news = true;
  corrupt_ = PositionAt(-hop->distance);
  return false;
}

// Whoever has run more has said so before.
bool Gossip::Take(Hop* hop, const Marks& said, size_t payload_bytes) {
  const uint64_t before = hop->heard.ready;
  const size_t payload = said.ready > before ? batches_->PayloadOf(said.ready) : 0;
  const bool possible =
      said.ready >= before && said.ready <= batches_->Reach(before) && said.end >= all_.ready &&
      payload_bytes == payload * (WeightOf(hop->distance + hop->count) - WeightOf(hop->distance));
  if (!possible) return false;
  std::memcpy(places_[said.ready % 2] + payload * WeightOf(hop->distance),
              hop->in.data() + sizeof said, payload_bytes);
  hop->heard = said;
  return true;
}

// Each hears of those whose marks it gets from nobody else.
void Gossip::TellAll() {
  Marks known = own_;
  for (const Hop& hop : hops_) known.end = std::min(known.end, hop.heard.end);
  for (Hop& hop : hops_) {
    Marks news = known;
    if (hop.count == 1) news.ready = own_.ready;
    if (!(news == hop.told)) Send(&hop, news);
    known.ready = std::min(known.ready, hop.heard.ready);
  }
  all_ = known;
}

void Gossip::Send(Hop* hop, const Marks& news) {
  const size_t payload =
      news.ready > hop->told.ready ? batches_->PayloadOf(news.ready) * WeightOf(hop->count) : 0;
  hop->out.Send(&news, sizeof news, places_[news.ready % 2], payload);
  hop->told = news;
}

bool Gossip::idle() const {
  return std::all_of(hops_.begin(), hops_.end(), [](const Hop& hop) { return hop.out.idle(); });
}

}  // namespace hvd
