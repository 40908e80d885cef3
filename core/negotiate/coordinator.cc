#include "negotiate/coordinator.h"

#include <algorithm>
#include <utility>

namespace hvd::negotiate {
namespace {

MergerOptions OptionsFor(const SequencerOptions& options,
                         std::vector<MergerOptions::Child> children) {
  MergerOptions merging;
  merging.children = std::move(children);
  merging.cache_capacity = options.cache_capacity;
  merging.report_after = 0;
  if (!merging.children.empty()) return merging;
  for (Position m(0); m.value() < options.members.size(); m = Next(m))
    merging.children.push_back({options.members[m], Positions{m.value()}});
  return merging;
}

}  // namespace

Coordinator::Coordinator(const SequencerOptions& options,
                         std::vector<MergerOptions::Child> children)
    : members_(options.members),
      merger_(OptionsFor(options, std::move(children))),
      sequencer_(options, merger_.cache()),
      learner_(options.learning),
      learns_(options.learning.repeats > 0) {}

Status Coordinator::Announce(size_t child, AnnounceMessage message, Micros now) {
  if (child >= merger_.children())
    return Status::Internal("no child " + std::to_string(child) + " in this process set");
  if (!message.announcements.empty() || message.joins || !message.joined.empty()) active_ = now;
  HVD_RETURN_IF_ERROR(merger_.Announce(child, std::move(message), now));
  AnnounceMessage merged;
  while (merger_.Take(&merged)) sequencer_.Hear(std::move(merged), now);
  return Status::Ok();
}

std::optional<Response> Coordinator::Next(Micros now) {
  std::optional<Response> response = sequencer_.Next(now);
  if (!response) return response;
  active_ = now;
  response->policy = policy_;
  (void)merger_.Pass(*response);  // cannot fail: it answers what the merger has said
  if (!learns_) return response;
  if (sequencer_.Crowded() && merger_.idle()) return Forgetting(std::move(response));
  response->schedule = learner_.Note(*response, merger_.idle());
  if (response->schedule.empty()) return response;
  merger_.Follow();
  sequencer_.Restart();
  return response;
}

std::optional<Response> Coordinator::Forgetting(std::optional<Response> response) {
  response->forgets = true;
  learner_.Restart();
  merger_.Forget();
  sequencer_.Forget();
  return response;
}

void Coordinator::Resume(uint64_t batches, uint64_t unnamed) {
  learner_.Left(batches);
  merger_.Resume(unnamed);
}

std::vector<Unready> Coordinator::Pending(Micros now) const {
  std::vector<Unready> pending;
  for (const Waiting& waiting : merger_.Unready(now)) {
    const Positions absent = merger_.below().Without(merger_.joined()).Without(waiting.ready);
    Unready& unready = pending.emplace_back();
    unready.name = waiting.ordinal == 0 ? waiting.name : PublicName(waiting.kind, waiting.ordinal);
    unready.kind = waiting.kind;
    unready.since = now - waiting.waited;
    unready.ready = waiting.ready.RanksIn(members_);
    unready.absent = absent.RanksIn(members_);
  }
  if (pending.empty()) AddJoin(&pending);
  std::sort(pending.begin(), pending.end(), [](const Unready& a, const Unready& b) {
    return a.since != b.since ? a.since < b.since : a.name < b.name;
  });
  return pending;
}

// Some have nothing more to do and wait for the others, who do nothing.
void Coordinator::AddJoin(std::vector<Unready>* pending) const {
  const Positions absent = merger_.below().Without(merger_.joined());
  if (merger_.joined().empty() || absent.empty()) return;
  Unready& join = pending->emplace_back();
  join.kind = OpKind::kJoin;
  join.name = Name(join.kind);
  join.since = active_;
  join.ready = merger_.joined().RanksIn(members_);
  join.absent = absent.RanksIn(members_);
}

std::string Coordinator::NameOf(const Request& next, uint64_t unnamed) const {
  return next.name.empty() ? PublicName(next.kind, merger_.unnamed_base() + unnamed) : next.name;
}

std::optional<Unready> Coordinator::WaitedFor(uint64_t batch, const Request& next,
                                              uint64_t unnamed) const {
  const Merger::Waiters& waiters = merger_.waiters();
  const Positions absent = merger_.below().Without(waiters.members);
  if (waiters.batch != batch || absent.empty()) return std::nullopt;
  Unready unready;
  unready.name = NameOf(next, unnamed);
  unready.kind = next.kind;
  unready.since = waiters.since;
  unready.ready = waiters.members.RanksIn(members_);
  unready.absent = absent.RanksIn(members_);
  return unready;
}

}  // namespace hvd::negotiate
