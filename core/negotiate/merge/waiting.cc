// What a merger says of operations that lack somebody.

#include <algorithm>
#include <limits>
#include <map>

#include "negotiate/merge/merger.h"

namespace hvd::negotiate {
namespace {

using Key = std::pair<std::string, uint64_t>;  // name, ordinal

Key KeyOf(const Waiting& waiting) { return {waiting.name, waiting.ordinal}; }

Key KeyOf(const Tally& tally, const Tallies& tallies) {
  return {tally.ordinal == 0 ? tallies.Text(tally.name) : "", tally.ordinal};
}

// The longest time where it is more: a child may tell any.
Micros Later(Micros waited, Micros elapsed) {
  constexpr Micros kLongest = std::numeric_limits<Micros>::max();
  return waited > kLongest - elapsed ? kLongest : waited + elapsed;
}

// But for the time, which every reader adds to by itself.
bool Same(const Waiting& a, const Waiting& b) {
  return KeyOf(a) == KeyOf(b) && a.kind == b.kind && a.ready == b.ready;
}

void Add(const Waiting& more, Waiting* waiting) {
  waiting->name = more.name;
  waiting->ordinal = more.ordinal;
  waiting->kind = more.kind;
  waiting->waited = std::max(waiting->waited, more.waited);
  waiting->ready.Add(more.ready);
}

}  // namespace

Positions Merger::ReadyOf(const Tally& tally) const {
  Positions ready;
  if (tally.details != nullptr && tally.details->listed) {
    for (const Variant& variant : tally.details->variants) ready.Add(variant.senders);
    return ready;
  }
  for (size_t c = 0; c < children_.size(); ++c) {
    const Child& child = children_[c];
    if (urgency_.Has(c, tally.number)) ready.Add(child.below.Without(child.joined));
  }
  return ready;
}

std::vector<Waiting> Merger::Unready(Micros now) const {
  std::map<Key, Waiting> all;
  tallies_.ForEach([&](const Tally& tally) {
    if (tally.complete) return;
    const Variant* first = tally.details == nullptr ? nullptr : &tally.details->variants[0];
    const uint32_t id = first == nullptr ? tally.id : first->id;
    Waiting waiting;
    if (tally.ordinal == 0) waiting.name = tallies_.Text(tally.name);
    waiting.ordinal = tally.ordinal;
    waiting.kind = id == kNoId ? first->request.kind : cache_.KindOf(id);
    waiting.waited = now - tally.since;
    waiting.ready = ReadyOf(tally);
    all[KeyOf(waiting)] = std::move(waiting);
  });
  for (const Child& child : children_) {
    for (Waiting waiting : child.waiting) {
      waiting.waited = Later(waiting.waited, now - child.told);
      Add(waiting, &all[KeyOf(waiting)]);
    }
  }
  std::vector<Waiting> list;
  for (auto& [key, waiting] : all) list.push_back(std::move(waiting));
  std::stable_sort(list.begin(), list.end(),
                   [](const Waiting& a, const Waiting& b) { return a.waited > b.waited; });
  return list;
}

// The child announces what it may have told of: that has waited for longer than this node knows of.
void Merger::TakeOver(Child* child, Tally* tally, Micros now) const {
  const Key key = KeyOf(*tally, tallies_);
  for (const Waiting& waiting : child->waiting) {
    if (KeyOf(waiting) != key) continue;
    const Micros waited = Later(waiting.waited, now - child->told);
    tally->since = std::max<Micros>(0, std::min(tally->since, now - waited));
  }
  ForgetWaiting(*tally, &child->waiting);
}

// Who has told of it has announced it since, so what it has told is no more: the next operation of
// that name is another.
void Merger::ForgetWaiting(const Tally& tally, std::vector<Waiting>* waiting) const {
  if (waiting->empty()) return;
  const Key key = KeyOf(tally, tallies_);
  waiting->erase(std::remove_if(waiting->begin(), waiting->end(),
                                [&](const Waiting& w) { return KeyOf(w) == key; }),
                 waiting->end());
}

void Merger::Look(Micros now) {
  if (next_look_ < 0 || now < next_look_) return;
  std::vector<Waiting> list = Unready(now);
  const auto young = std::find_if(list.begin(), list.end(), [&](const Waiting& waiting) {
    return waiting.waited < options_.report_after;
  });
  // What is told changes only with time, or when something is announced.
  next_look_ = young == list.end() ? -1 : now + options_.report_after;
  list.erase(young, list.end());
  if (list.size() > kMaxWaiting) list.resize(kMaxWaiting);
  if (std::equal(list.begin(), list.end(), told_.begin(), told_.end(), Same)) return;
  told_ = list;
  merged_.back().waiting = std::move(list);
}

Micros Merger::Deadline() const { return next_look_; }

}  // namespace hvd::negotiate
