#include "transport/shm/share_tree.h"

#include <algorithm>

#include "base/clock.h"

namespace hvd::shm {

namespace {

Status From(const std::string& who, const Status& status) {
  return status.ok() ? status : Status(status.code(), who + ": " + status.message());
}

// Of an exchange that this rank gave up before the message came.
bool IsOfEarlier(const Message& message, const Identity& about) {
  return message.magic == kMagic && message.identity.generation == about.generation &&
         message.identity.set < about.set;
}

}  // namespace

ShareTree::ShareTree(uint64_t generation, Members ranks, std::vector<int> sockets, int place)
    : generation_(generation),
      ranks_(std::move(ranks)),
      sockets_(std::move(sockets)),
      tree_(place, ranks_.size()),
      wakers_(ranks_.ranks().size()) {}

Status ShareTree::Make(uint64_t generation, Members ranks, GlobalRank rank,
                       std::vector<int> sockets, const Waker& waker, Deadline deadline,
                       std::unique_ptr<ShareTree>* out) {
  const Position self = ranks.Find(rank);
  if (!self.known() || sockets.size() != ranks.ranks().size()) {
    return Status::Internal(
        "ranks that share memory need their own rank and a place for each socket");
  }
  std::unique_ptr<ShareTree> made(
      new ShareTree(generation, std::move(ranks), std::move(sockets), self.value()));
  std::vector<int> neighbours = made->tree_.Children();
  if (!made->tree_.is_root()) neighbours.push_back(made->tree_.parent());
  for (const int neighbour : neighbours) {
    if (made->sockets_[static_cast<size_t>(neighbour)] >= 0) continue;
    return Status::Internal(Name(rank) + " has no link to " + made->Who(neighbour) +
                            " to share memory over");
  }
  *out = std::move(made);
  return (*out)->ShareWakers(waker.fd(), deadline);
}

// Those of a subtree travel to its root; then everybody's travel from the root to all.
Status ShareTree::ShareWakers(int waker, Deadline deadline) {
  const int64_t now = NowMicros();
  const int own = tree_.position();
  Fault fault;
  wakers_[own] = std::make_shared<const Descriptor>(Descriptor::Duplicate(waker));
  if (!wakers_[own]->valid()) fault.Keep(Status::Errno("dup"), Outcome::kCannot, rank());
  for (const int child : tree_.Children()) {
    CollectWakers(child, child, tree_.End(child), GiveUpAt(Stage::kWakersUp, tree_, now, deadline),
                  &fault);
  }
  const Deadline down = GiveUpAt(Stage::kDown, tree_, now, deadline);
  if (!tree_.is_root()) {
    SendWakers(tree_.parent(), own, tree_.End(own), down, &fault);
    CollectWakers(tree_.parent(), 0, tree_.size(), down, &fault);
  }
  for (const int child : tree_.Children()) SendWakers(child, 0, tree_.size(), down, &fault);
  wakers_[own].reset();
  Identity identity;
  identity.generation = generation_;
  return Agree(identity, std::move(fault), deadline);
}

void ShareTree::CollectWakers(int from, int first, int end, Deadline limit, Fault* fault) {
  Identity about;
  about.generation = generation_;
  while (first < end) {
    Message message;
    std::vector<Descriptor> batch;
    const Status heard = Hear(from, Message::kWakers, about, limit, &message, &batch, fault);
    if (!heard.ok()) return;
    if (batch.empty() || batch.size() > static_cast<size_t>(end - first)) {
      const std::string sent =
          Who(from) + " sent " + std::to_string(batch.size()) + " event descriptors";
      return fault->Keep(Status::Aborted(sent), Outcome::kCannot, RankAt(from));
    }
    for (Descriptor& waker : batch) {
      wakers_[first++] = std::make_shared<const Descriptor>(std::move(waker));
    }
  }
}

void ShareTree::SendWakers(int to, int first, int end, Deadline limit, Fault* fault) {
  Identity about;
  about.generation = generation_;
  while (first < end) {
    const int batch = std::min(end - first, static_cast<int>(kMostDescriptors));
    std::vector<int> descriptors;
    for (int i = 0; i < batch && fault->status.ok(); ++i)
      descriptors.push_back(wakers_[first + i]->get());
    const Status sent = Tell(to, Message::kWakers, about, *fault, descriptors, limit);
    fault->Keep(sent, Outcome::kCannot, rank());
    if (!fault->status.ok()) return;  // said, as far as it can be
    first += batch;
  }
}

void ShareTree::Spread(Identity* identity, Descriptor* memfd, Deadline deadline, Fault* fault) {
  const Deadline limit = GiveUpAt(Stage::kDown, tree_, NowMicros(), deadline);
  if (!tree_.is_root()) {
    Message message;
    std::vector<Descriptor> descriptors;
    const Status heard =
        Hear(tree_.parent(), Message::kSegment, *identity, limit, &message, &descriptors, fault);
    if (heard.ok() && descriptors.size() == 1) {
      *identity = message.identity;
      *memfd = std::move(descriptors[0]);
    } else if (heard.ok()) {
      const std::string sent = std::to_string(descriptors.size()) + " descriptors";
      fault->Keep(Status::Aborted(Who(tree_.parent()) + " sent " + sent), Outcome::kCannot,
                  RankAt(tree_.parent()));
    }
  }
  std::vector<int> descriptors;
  if (fault->status.ok()) descriptors.push_back(memfd->get());
  for (const int child : tree_.Children()) {
    const Status sent = Tell(child, Message::kSegment, *identity, *fault, descriptors, limit);
    fault->Keep(sent, Outcome::kCannot, rank());
  }
}

Status ShareTree::Agree(const Identity& identity, Fault fault, Deadline deadline) {
  const int64_t now = NowMicros();
  const Deadline up = GiveUpAt(Stage::kVerdictUp, tree_, now, deadline);
  const Deadline down = GiveUpAt(Stage::kVerdictDown, tree_, now, deadline);
  Message message;
  std::vector<Descriptor> none;
  for (const int child : tree_.Children()) {
    (void)Hear(child, Message::kVerdict, identity, up, &message, &none, &fault);
  }
  if (!tree_.is_root()) {
    const Status told = Tell(tree_.parent(), Message::kVerdict, identity, fault, {}, down);
    fault.Keep(told, Outcome::kAbsent, RankAt(tree_.parent()));
    (void)Hear(tree_.parent(), Message::kVerdict, identity, down, &message, &none, &fault);
  }
  for (const int child : tree_.Children()) {
    const Status told = Tell(child, Message::kVerdict, identity, fault, {}, down);
    fault.Keep(told, Outcome::kAbsent, RankAt(child));
  }
  failed_rank_ = fault.rank;
  return fault.status;
}

// Without the descriptors if these cannot be sent: who waits for them learns at once why they do
// not come.
Status ShareTree::Tell(int to, Message::Kind kind, const Identity& identity, const Fault& fault,
                       const std::vector<int>& descriptors, Deadline limit) {
  Message message;
  message.kind = kind;
  message.identity = identity;
  message.outcome = fault.outcome;
  message.failed_rank = static_cast<uint32_t>(fault.rank.value());
  const Status status = From(Who(to), Send(sockets_[to], message, descriptors, limit));
  if (status.ok() || descriptors.empty()) return status;
  message.outcome = Outcome::kCannot;
  message.failed_rank = static_cast<uint32_t>(rank().value());
  (void)Send(sockets_[to], message, {}, limit);
  return status;
}

// Reads one message about what is being shared; another rank's fault that it tells of is kept.
Status ShareTree::Hear(int from, Message::Kind kind, const Identity& about, Deadline limit,
                       Message* message, std::vector<Descriptor>* descriptors, Fault* fault) {
  Status status;
  do {
    descriptors->clear();
    status = Receive(sockets_[from], message, descriptors, limit);
  } while (status.ok() && IsOfEarlier(*message, about));
  if (status.code() == Code::kUnavailable) {
    fault->Keep(status, Outcome::kCannot, rank());  // what this rank lacks is not the other's fault
    return status;
  }
  status = From(Who(from), status);
  fault->Keep(status, Outcome::kAbsent, RankAt(from));
  HVD_RETURN_IF_ERROR(status);
  const Identity& theirs = message->identity;
  const bool agrees = message->magic == kMagic && message->kind == kind &&
                      theirs.generation == generation_ && theirs.set == about.set &&
                      theirs.bytes == about.bytes && theirs.members == about.members &&
                      theirs.digest == about.digest && message->outcome <= Outcome::kAbsent;
  if (!agrees)
    status = Status::Aborted(Who(from) + " is sharing another segment, or speaks another protocol");
  fault->Keep(status, Outcome::kCannot, RankAt(from));
  HVD_RETURN_IF_ERROR(status);
  if (message->outcome == Outcome::kDone) return status;
  const GlobalRank culprit(static_cast<int32_t>(message->failed_rank));
  status = {Code::kUnavailable,
            Name(culprit) + (message->outcome == Outcome::kCannot
                                 ? " could not share memory; its own error says why"
                                 : " did not answer while memory was shared")};
  fault->Keep(status, message->outcome, culprit);
  return status;
}

}  // namespace hvd::shm
