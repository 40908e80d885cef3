#include "runtime/control/watermarks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace hvd {

using negotiate::kNoEnd;
using negotiate::Marks;

namespace {

constexpr Position kFirst{0};  // of the host

// A mark as a flag, which only grows: twice the batches, and one more for a last word.
uint64_t WordOf(uint64_t ready, bool last) { return 2 * ready + (last ? 1 : 0); }

std::vector<std::vector<Position>> HostsOf(const Topology& topology, bool share_memory) {
  std::vector<std::vector<Position>> hosts;
  for (int host = 0; share_memory && host < topology.hosts(); ++host)
    hosts.push_back(topology.OnHost(host));
  for (Position m(0); !share_memory && m.value() < topology.size(); m = Next(m))
    hosts.push_back({m});
  return hosts;
}

}  // namespace

// What one member of a host writes.
struct Watermarks::Flags {
  alignas(64) Flag mark;
  std::atomic<int64_t> published_us;  // when, on the clock that the members of a host share
  alignas(64) Flag all;               // the marks of all hosts, of the first member
  alignas(64) std::byte payload[2][negotiate::kMostPayload];
  alignas(64) std::byte payloads[2][negotiate::kMostPayloads];  // of all hosts; not there on one
};

size_t Watermarks::WindowBytes(bool several_hosts) {
  return several_hosts ? sizeof(Flags) : offsetof(Flags, payloads);
}

Watermarks::Watermarks(Window* window, const Topology& topology, Position self)
    : window_(window),
      hosts_(HostsOf(topology, window != nullptr)),
      local_(
          &hosts_[static_cast<size_t>(window == nullptr ? self.value() : topology.HostOf(self))]),
      place_(window == nullptr ? kFirst : window->position()),
      members_(static_cast<size_t>(topology.size())),
      places_(members_) {
  const auto own = static_cast<size_t>(local_ - hosts_.data());
  size_t place = 0;
  for (size_t behind = 0; behind < hosts_.size(); ++behind) {
    for (const Position member : hosts_[(own + hosts_.size() - behind) % hosts_.size()])
      places_[member.index()] = place++;
  }
}

Watermarks::~Watermarks() = default;

Status Watermarks::Make(Window* window, Transport* transport, uint32_t set, const Members& members,
                        const Topology& topology, Position self,
                        std::unique_ptr<Watermarks>* watermarks) {
  std::unique_ptr<Watermarks> made(new Watermarks(window, topology, self));
  const bool several_hosts = made->hosts_.size() > 1;
  if (window != nullptr) {
    SegmentId id;
    HVD_RETURN_IF_ERROR(window->Allocate(WindowBytes(several_hosts), &id));
    for (Position place(0); place.value() < window->size(); place = Next(place))
      made->flags_.push_back(reinterpret_cast<Flags*>(window->Span(place, id)));
  }
  if (window == nullptr) made->payloads_.resize(2 * negotiate::kMostPayloads);
  if (several_hosts && made->place_ == kFirst) {
    std::vector<int> firsts, weights;
    for (const std::vector<Position>& host : made->hosts_) {
      firsts.push_back(members[host.front()].value());
      weights.push_back(static_cast<int>(host.size()));
    }
    made->gossip_ =
        std::make_unique<Gossip>(transport, set, Members(firsts), weights, &made->batches_,
                                 std::array<std::byte*, 2>{made->Place(0), made->Place(1)});
  }
  *watermarks = std::move(made);
  return Status::Ok();
}

void Watermarks::Begin(std::vector<size_t> payloads) {
  batches_.Begin(std::move(payloads));
  own_ = told_ = all_ = {batches_.base(), kNoEnd};
  follows_ = true;
  if (gossip_ != nullptr) gossip_->Begin();
}

void Watermarks::Leave(uint64_t passed) {
  batches_.End(passed);
  follows_ = false;
  if (gossip_ != nullptr) gossip_->End();
}

// Whoever is ready for more than this member was waits for its mark, and looks at all marks before
// it sleeps.
void Watermarks::Publish(uint64_t ready, int64_t now_us) {
  const uint64_t before = std::exchange(own_.ready, ready);
  if (flags_.empty()) return;
  Flags& mine = *flags_[place_.index()];
  mine.published_us.store(now_us, std::memory_order_relaxed);
  Post(place_);
  const size_t readers = hosts_.size() > 1 ? 1 : flags_.size();
  for (Position reader(0); reader.index() < readers; reader = Next(reader)) {
    if (reader != place_ && Window::Try(flags_[reader.index()]->mark) / 2 > before) Post(reader);
  }
}

void Watermarks::Post(Position reader) {
  window_->Post(flags_[place_.index()]->mark, WordOf(own_.ready, own_.ended()), reader);
}

void Watermarks::End() {
  own_.end = own_.ready;
  if (!flags_.empty()) Post(hosts_.size() > 1 && place_ != kFirst ? kFirst : Window::kEverybody);
  Read();
}

void Watermarks::Look(bool* moved) {
  if (gossip_ != nullptr) gossip_->Look(moved);
  if (!follows_) return;
  const Marks before = all_;
  Read();
  if (all_.ended() && !own_.ended()) End();
  *moved |= !(all_ == before);
}

void Watermarks::Read() {
  if (hosts_.size() > 1 && gossip_ == nullptr) {
    all_ = ReadFirst();
    return;
  }
  const Marks host = ReadHost();
  if (gossip_ == nullptr) {
    all_ = host;
    return;
  }
  if (!(host == told_)) {
    if (host.ready > told_.ready) BringPayloads(host.ready);
    gossip_->Tell(host);
    told_ = host;
  }
  if (!(gossip_->all() == all_)) PublishAll();
}

Marks Watermarks::ReadHost() {
  Marks marks = own_;
  for (size_t place = 0; place < flags_.size(); ++place) {
    if (place != place_.index()) marks.Add(MarkOf(place));
  }
  return marks;
}

Marks Watermarks::ReadFirst() {
  const Marks all = Understood(Window::Try(flags_[0]->all), own_.ready, (*local_)[0]);
  return {all.ready, std::min({own_.end, all.end, MarkOf(0).end})};
}

// Nobody has run more than this member is ready for.
Marks Watermarks::MarkOf(size_t place) {
  const uint64_t word = Window::Try(flags_[place]->mark);
  const uint64_t most = word / 2 > own_.ready ? batches_.Reach(own_.ready) : own_.ready;
  return Understood(word, most, (*local_)[place]);
}

// What was written before this schedule says nothing of it.
Marks Watermarks::Understood(uint64_t word, uint64_t most, Position writer) {
  Marks marks{batches_.base(), kNoEnd};
  if (word / 2 < marks.ready) return marks;
  if (word / 2 > most || word / 2 < all_.ready) {
    corrupt_ = writer;
    return marks;
  }
  marks.ready = word / 2;
  if (word % 2 == 1) marks.end = marks.ready;
  return marks;
}

std::byte* Watermarks::Room(uint64_t batch) {
  return flags_.empty() ? Place(batch) : flags_[place_.index()]->payload[batch % 2];
}

std::byte* Watermarks::Place(uint64_t batch) {
  if (!flags_.empty()) return flags_[0]->payloads[batch % 2];
  return payloads_.data() + batch % 2 * negotiate::kMostPayloads;
}

// Of the members of this host, to the first place.
void Watermarks::BringPayloads(uint64_t batch) {
  std::byte* to = Place(batch);
  for (const Flags* flags : flags_)
    to = std::copy_n(flags->payload[batch % 2], batches_.PayloadOf(batch), to);
}

// To the others of this host, if there are any.
void Watermarks::PublishAll() {
  const Marks before = std::exchange(all_, gossip_->all());
  const uint64_t word = WordOf(all_.ready, all_.over());
  if (flags_.empty() || word == WordOf(before.ready, before.over())) return;
  window_->Post(flags_[0]->all, word);
}

const std::byte* Watermarks::PayloadOf(Position member) {
  if (hosts_.size() == 1) return flags_[member.index()]->payload[all_.ready % 2];
  return Place(all_.ready) + places_[member.index()] * batches_.PayloadOf(all_.ready);
}

Watermarks::Last Watermarks::last() const {
  Last last;
  if (hosts_.size() > 1) return last;
  for (size_t place = 0; place < flags_.size(); ++place) {
    const int64_t published = flags_[place]->published_us.load(std::memory_order_relaxed);
    if (!last.member.known() || published > last.published_us) {
      last = {(*local_)[place], std::max(last.since_us, last.published_us), published};
    } else {
      last.since_us = std::max(last.since_us, published);
    }
  }
  return last;
}

Position Watermarks::corrupt() const {
  const Position told = gossip_ == nullptr ? Position() : gossip_->corrupt();
  return told.known() ? hosts_[told.index()].front() : corrupt_;
}

}  // namespace hvd
