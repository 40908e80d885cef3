#include "simulator.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "ledger.h"
#include "random.h"
#include "sim_member.h"
#include "sim_tree.h"

namespace hvd::negotiate {
namespace {

enum class Happens : uint8_t { kSubmit, kAnnounced, kAlarm, kResponse };

struct Event {
  Micros time;
  uint64_t order;  // of its creation: ties are broken alike on every machine
  Happens what;
  int rank;                // whose program acts; -1: a node acts
  SimTree::Place at = {};  // where something is announced, or whom a response goes to
  std::shared_ptr<const std::string> bytes = nullptr;
  std::vector<size_t> operations = {};  // announced by `bytes`
  int step = 0;
  bool operator<(const Event& other) const {  // the earliest on top
    return std::tie(time, order) > std::tie(other.time, other.order);
  }
};

class World {
 public:
  explicit World(const Scenario& scenario);
  Outcome Run();

 private:
  void Plan(Event event);
  Micros Arrival(Micros* link);
  void Handle(const Event& event);
  void OnSubmit(int rank);
  void Send(int rank, size_t count, bool block);
  void OnAnnounced(const Event& event);
  void SendUp(int node, const std::vector<AnnounceMessage>& messages);
  void SendDown(int node, const std::shared_ptr<const std::string>& bytes);
  void OnResponse(const Event& event);
  void TellWhatWaits();
  void Publish();
  void Count(const Response& response);
  void Finish();
  void BeginStep(int rank);
  void Violation(const std::string& what) { outcome_.violations.push_back(what); }

  const Scenario scenario_;
  const std::vector<Request> workload_;
  Random random_;
  SequencerOptions options_;
  SimTree tree_;
  std::vector<SimMember> members_;
  std::priority_queue<Event> events_;
  Micros now_ = 0;
  uint64_t order_ = 0;
  // When the latest message on each link arrives, by its lower end: members, then nodes.
  std::vector<Micros> up_;
  std::vector<Micros> down_;
  Ledger ledger_;
  Micros alarm_ = -1;
  size_t victim_bursts_ = 0;
  bool dead_ = false;
  bool loses_ = false;  // what the victim has sent and has not arrived
  Outcome outcome_;
};

Topology TopologyOf(const Scenario& scenario) {
  if (scenario.hosts.empty()) return Topology::OneHost(scenario.ranks, true);
  return {scenario.hosts, true};
}

SequencerOptions WithMembers(SequencerOptions options, int ranks) {
  options.members = Members::Everybody(ranks);
  options.learning.repeats = 0;  // its ranks follow no schedule
  return options;
}

World::World(const Scenario& scenario)
    : scenario_(scenario),
      workload_(Workload(scenario.seed, scenario.named, scenario.unnamed)),
      random_(~scenario.seed),
      options_(WithMembers(scenario.options, scenario.ranks)),
      tree_(options_, TopologyOf(scenario)),
      up_(options_.members.ranks().size() + static_cast<size_t>(tree_.nodes()), 0),
      down_(up_.size(), 0),
      ledger_(scenario.seed, scenario.ranks, scenario.steps, &workload_, options_.batch_bytes) {
  outcome_.full.assign(static_cast<size_t>(scenario.steps), 0);
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    members_.emplace_back(scenario.seed, rank, scenario.ranks, &workload_);
  }
  victim_bursts_ = random_.Below(4);
  loses_ = random_.OneIn(2);
}

void World::Plan(Event event) {
  event.order = order_++;
  events_.push(std::move(event));
}

// A link keeps the order of its messages.
Micros World::Arrival(Micros* link) {
  const auto delay =
      static_cast<Micros>(random_.Below(static_cast<uint64_t>(scenario_.max_delay) + 1));
  return *link = std::max(*link, now_ + delay);
}

void World::BeginStep(int rank) {
  SimMember& member = members_[static_cast<size_t>(rank)];
  if (member.step() + 1 == scenario_.steps) {
    ++outcome_.finished;
    return;
  }
  member.BeginStep(member.step() + 1);
  for (int i = 0; i < scenario_.mismatches && member.step() == 1; ++i) {
    // Operation i, by rank i % ranks; barriers have no shape to differ in.
    if (rank == i % scenario_.ranks) member.Spoil(static_cast<size_t>(i));
  }
  Plan({now_ + static_cast<Micros>(random_.Below(500)), 0, Happens::kSubmit, rank});
}

void World::OnSubmit(int rank) {
  SimMember& member = members_[static_cast<size_t>(rank)];
  if (rank == scenario_.victim && member.step() + 1 == scenario_.steps && victim_bursts_-- == 0)
    dead_ = true;
  if (dead_ && rank == scenario_.victim) return;
  const size_t burst = 1 + random_.Below(random_.OneIn(4) ? workload_.size() : 4);
  Send(rank, burst, random_.OneIn(8));
  if (member.submitted()) {
    Send(rank, 0, true);  // the program waits for its step
  } else {
    Plan({now_ + static_cast<Micros>(random_.Below(200)), 0, Happens::kSubmit, rank});
  }
}

void World::Send(int rank, size_t count, bool block) {
  SimMember& member = members_[static_cast<size_t>(rank)];
  auto bytes = std::make_shared<std::string>(member.Submit(count, block));
  outcome_.full[static_cast<size_t>(member.step())] += member.full();
  Plan({Arrival(&up_[static_cast<size_t>(rank)]), 0, Happens::kAnnounced, rank, tree_.PlaceOf(rank),
        std::move(bytes), member.announced(), member.step()});
}

void World::SendUp(int node, const std::vector<AnnounceMessage>& messages) {
  for (const AnnounceMessage& message : messages) {
    auto bytes = std::make_shared<std::string>();
    Encode(message, bytes.get());
    Micros* link = &up_[static_cast<size_t>(scenario_.ranks + node)];
    Plan({Arrival(link), 0, Happens::kAnnounced, -1, tree_.ParentOf(node), std::move(bytes)});
  }
}

void World::SendDown(int node, const std::shared_ptr<const std::string>& bytes) {
  for (const SimTree::Target& to : tree_.ChildrenOf(node)) {
    const int end = to.node >= 0 ? scenario_.ranks + to.node : to.member;
    Micros* link = &down_[static_cast<size_t>(end)];
    Plan({Arrival(link), 0, Happens::kResponse, to.member, {to.node, 0}, bytes});
  }
}

void World::OnAnnounced(const Event& event) {
  if (dead_ && loses_ && event.rank == scenario_.victim) return;
  AnnounceMessage message;
  const Status decoded = Decode(*event.bytes, &message);
  if (!decoded.ok()) Violation(decoded.message());
  if (event.rank >= 0) ledger_.Arrived(event.rank, event.step, event.operations);
  std::vector<AnnounceMessage> up;
  const Status announced = tree_.Announce(event.at, std::move(message), now_, &up);
  if (!announced.ok()) Violation(announced.message());
  SendUp(event.at.node, up);
  if (event.at.node == SimTree::kRoot) Publish();
}

void World::OnResponse(const Event& event) {
  if (event.rank < 0) {
    Response response;
    Status passed = Decode(*event.bytes, &response);
    if (passed.ok()) passed = tree_.Pass(event.at.node, response);
    if (!passed.ok()) Violation(passed.message());
    return SendDown(event.at.node, event.bytes);
  }
  if (dead_ && event.rank == scenario_.victim) return;
  SimMember& member = members_[static_cast<size_t>(event.rank)];
  const bool was_idle = member.idle();
  member.Receive(*event.bytes, &outcome_.violations);
  if (!was_idle && member.idle()) BeginStep(event.rank);
}

void World::Publish() {
  while (auto response = tree_.root().Next(now_)) {
    Count(*response);
    ledger_.Judge(*response, &outcome_.violations);
    auto bytes = std::make_shared<std::string>();
    Encode(*response, bytes.get());
    SendDown(SimTree::kRoot, bytes);
  }
  const Micros deadline = tree_.root().Deadline();
  if (deadline < 0 || (alarm_ >= 0 && alarm_ <= deadline)) return;
  alarm_ = std::max(deadline, now_);
  Plan({alarm_, 0, Happens::kAlarm, -1});
}

void World::Count(const Response& response) {
  ++outcome_.responses;
  outcome_.decisions += static_cast<int64_t>(OperationsIn(response));
  for (const Decision& decision : response.decisions) {
    if (!decision.error.empty()) outcome_.errors.push_back(decision.error);
  }
}

void World::Handle(const Event& event) {
  now_ = event.time;
  const uint64_t head = (static_cast<uint64_t>(event.time) << 20) ^
                        (static_cast<uint64_t>(event.rank) << 4) ^
                        static_cast<uint64_t>(event.what);
  outcome_.trace = (outcome_.trace ^ head) * 0x100000001b3ull;
  if (event.bytes) outcome_.trace = HashBytes(outcome_.trace, *event.bytes);
  switch (event.what) {
    case Happens::kSubmit:
      return OnSubmit(event.rank);
    case Happens::kAnnounced:
      return OnAnnounced(event);
    case Happens::kAlarm:
      alarm_ = -1;
      return Publish();
    case Happens::kResponse:
      return OnResponse(event);
  }
}

// Some time after the last event: every node tells its parent, whose number is lower.
void World::TellWhatWaits() {
  for (int node = tree_.nodes() - 1; node > SimTree::kRoot; --node) {
    std::vector<AnnounceMessage> up;
    tree_.Look(node, now_ + 2'000'000, &up);
    for (AnnounceMessage& message : up) {
      const Status told = tree_.Announce(tree_.ParentOf(node), std::move(message), now_, nullptr);
      if (!told.ok()) Violation(told.message());
    }
  }
}

void World::Finish() {
  TellWhatWaits();
  outcome_.end = now_;
  outcome_.died = dead_;
  outcome_.pending = tree_.root().Pending(now_);
  if (dead_) outcome_.orphaned = ledger_.Lacking(scenario_.victim, scenario_.steps - 1);
  const int witness = scenario_.victim == 0 ? 1 : 0;
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    if (dead_ && rank == scenario_.victim) continue;
    const bool same = members_[static_cast<size_t>(rank)].stream() ==
                      members_[static_cast<size_t>(witness)].stream();
    if (!same) Violation("rank " + std::to_string(rank) + " saw another stream");
  }
}

Outcome World::Run() {
  for (int rank = 0; rank < scenario_.ranks; ++rank) BeginStep(rank);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Handle(event);
  }
  Finish();
  return std::move(outcome_);
}

}  // namespace

Outcome Simulate(const Scenario& scenario) { return World(scenario).Run(); }

}  // namespace hvd::negotiate
