#include "set_simulator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>

#include "random.h"
#include "set_ledger.h"
#include "set_rank.h"
#include "sim_tree.h"

namespace hvd::negotiate {
namespace {

enum class Happens : uint8_t { kGo, kAnnounced, kAlarm, kResponse };

struct Event {
  Micros time;
  uint64_t order;  // of its creation: ties are broken alike on every machine
  Happens what;
  int rank;  // whose program acts; -1: a node acts
  int set = -1;
  SimTree::Place at = {};  // where something is announced, or whom a response goes to
  std::shared_ptr<const std::string> bytes = nullptr;
  std::vector<size_t> operations = {};  // announced by `bytes`
  bool joins = false;
  bool operator<(const Event& other) const {  // the earliest on top
    return std::tie(time, order) > std::tie(other.time, other.order);
  }
};

// The tree of a set with its links.
struct Desk {
  Desk(const SequencerOptions& options, const Topology& topology) : tree(options, topology) {
    for (const GlobalRank rank : options.members.ranks()) members.push_back(rank.value());
  }

  int MemberOf(int rank) const {
    const auto found = std::lower_bound(members.begin(), members.end(), rank);
    return static_cast<int>(found - members.begin());
  }

  std::vector<int> members;
  SimTree tree;
  // When the latest message on a link arrives, by its lower end: members, then nodes.
  std::map<int, Micros> up;
  std::map<int, Micros> down;
  Micros alarm = -1;
};

class World {
 public:
  explicit World(const SetProgram& program);
  SetOutcome Run();

 private:
  void Plan(Event event);
  Micros Arrival(Micros* link);
  void Handle(const Event& event);
  void OnGo(int rank);
  void OnAnnounced(const Event& event);
  void OnAlarm(int set);
  void SendUp(const Event& event, const std::vector<AnnounceMessage>& messages);
  void SendDown(int set, int node, const std::shared_ptr<const std::string>& bytes);
  void OnResponse(const Event& event);
  void OpenDesk(int set, size_t epoch);
  void Publish(int set);
  void Form(size_t epoch);
  void CheckIdle(const SimTree& tree);
  void Violation(const std::string& what) { outcome_.violations.push_back(what); }

  const SetProgram& program_;
  SetOutcome outcome_;
  Random random_;
  SetLedger ledger_;
  std::vector<SetRank> ranks_;
  std::map<int, Desk> desks_;  // by set
  std::priority_queue<Event> events_;
  Micros now_ = 0;
  uint64_t order_ = 0;
  size_t formed_ = 0;  // epochs
};

World::World(const SetProgram& program)
    : program_(program), random_(~program.seed), ledger_(&program, &outcome_.violations) {
  for (int rank = 0; rank < program.ranks; ++rank) {
    ranks_.emplace_back(&program, rank, &ledger_, &outcome_.violations);
    Plan({static_cast<Micros>(random_.Below(500)), 0, Happens::kGo, rank});
  }
  OpenDesk(0, 0);
}

void World::OpenDesk(int set, size_t epoch) {
  const std::vector<int>& members = program_.epochs[epoch].sets.at(set);
  SequencerOptions options = program_.options;
  options.members = Members(members);
  options.learning.repeats = 0;  // its ranks follow no schedule
  std::vector<int> hosts;
  for (const int rank : members) hosts.push_back(program_.hosts[static_cast<size_t>(rank)]);
  desks_.emplace(std::piecewise_construct, std::tuple(set),
                 std::tuple(options, Topology(hosts, true)));
  ledger_.Formed(set, epoch);
}

void World::Plan(Event event) {
  event.order = order_++;
  events_.push(std::move(event));
}

// A link keeps the order of its messages.
Micros World::Arrival(Micros* link) {
  const auto delay =
      static_cast<Micros>(random_.Below(static_cast<uint64_t>(program_.max_delay) + 1));
  return *link = std::max(*link, now_ + delay);
}

void World::OnGo(int rank) {
  SetRank& member = ranks_[static_cast<size_t>(rank)];
  for (SetRank::Mail& mail : member.Go()) {
    const auto desk = desks_.find(mail.set);
    if (desk == desks_.end()) return Violation("a message to a set that is not there");
    const int member = desk->second.MemberOf(rank);
    Plan({Arrival(&desk->second.up[member]), 0, Happens::kAnnounced, rank, mail.set,
          desk->second.tree.PlaceOf(member), std::make_shared<std::string>(std::move(mail.bytes)),
          std::move(mail.operations), mail.joins});
  }
  if (!member.waiting())
    Plan({now_ + static_cast<Micros>(random_.Below(200)), 0, Happens::kGo, rank});
}

void World::OnAnnounced(const Event& event) {
  const auto desk = desks_.find(event.set);
  if (desk == desks_.end()) return Violation("a message to a removed set");
  AnnounceMessage message;
  const Status decoded = Decode(*event.bytes, &message);
  if (!decoded.ok()) Violation(decoded.message());
  if (event.rank >= 0) {
    if (message.joins != event.joins) Violation("a join was lost");
    ledger_.Announced(event.set, event.rank, event.operations);
    if (event.joins) ledger_.Joined(event.set, event.rank);
  }
  std::vector<AnnounceMessage> up;
  const Status announced = desk->second.tree.Announce(event.at, std::move(message), now_, &up);
  if (!announced.ok()) Violation(announced.message());
  SendUp(event, up);
  if (event.at.node == SimTree::kRoot) Publish(event.set);
}

void World::SendUp(const Event& event, const std::vector<AnnounceMessage>& messages) {
  Desk& desk = desks_.at(event.set);
  const int node = event.at.node;
  for (const AnnounceMessage& message : messages) {
    auto bytes = std::make_shared<std::string>();
    Encode(message, bytes.get());
    Micros* link = &desk.up[static_cast<int>(desk.members.size()) + node];
    Plan({Arrival(link), 0, Happens::kAnnounced, -1, event.set, desk.tree.ParentOf(node),
          std::move(bytes)});
  }
}

void World::SendDown(int set, int node, const std::shared_ptr<const std::string>& bytes) {
  Desk& desk = desks_.at(set);
  for (const SimTree::Target& to : desk.tree.ChildrenOf(node)) {
    const bool member = to.member >= 0;
    const int end = member ? to.member : static_cast<int>(desk.members.size()) + to.node;
    const int rank = member ? desk.members[static_cast<size_t>(to.member)] : -1;
    Plan({Arrival(&desk.down[end]), 0, Happens::kResponse, rank, set, {to.node, 0}, bytes});
  }
}

void World::OnResponse(const Event& event) {
  if (event.rank < 0) {
    Response response;
    Status passed = Decode(*event.bytes, &response);
    if (passed.ok()) passed = desks_.at(event.set).tree.Pass(event.at.node, response);
    if (!passed.ok()) Violation(passed.message());
    return SendDown(event.set, event.at.node, event.bytes);
  }
  SetRank& member = ranks_[static_cast<size_t>(event.rank)];
  const bool waited = member.waiting();
  member.Receive(event.set, *event.bytes);
  if (waited && !member.waiting())
    Plan({now_ + static_cast<Micros>(random_.Below(200)), 0, Happens::kGo, event.rank});
}

void World::Publish(int set) {
  Desk& desk = desks_.at(set);
  while (auto response = desk.tree.root().Next(now_)) {
    ledger_.Published(set, *response);
    auto bytes = std::make_shared<std::string>();
    Encode(*response, bytes.get());
    SendDown(set, SimTree::kRoot, bytes);
    if (set == 0 && ledger_.epochs() > formed_) Form(formed_++);
  }
  const Micros deadline = desk.tree.root().Deadline();
  if (deadline < 0 || (desk.alarm >= 0 && desk.alarm <= deadline)) return;
  desk.alarm = std::max(deadline, now_);
  Plan({desk.alarm, 0, Happens::kAlarm, -1, set});
}

// The barrier of an epoch is decided: every rank has done with the sets that go.
void World::Form(size_t epoch) {
  const std::map<int, std::vector<int>>& sets = program_.epochs[epoch].sets;
  for (auto desk = desks_.begin(); desk != desks_.end();) {
    const bool removed = sets.count(desk->first) == 0;
    if (removed) CheckIdle(desk->second.tree);
    outcome_.removed += removed;
    desk = removed ? desks_.erase(desk) : std::next(desk);
  }
  for (const auto& [set, members] : sets) {
    if (desks_.count(set) > 0) continue;
    OpenDesk(set, epoch);
  }
}

void World::CheckIdle(const SimTree& tree) {
  if (tree.root().Deadline() != -1) Violation("a root is not idle");
  for (int node = 0; node < tree.nodes(); ++node) {
    if (!tree.merger(node).Unready(now_).empty()) Violation("a node is not idle");
    if (!tree.merger(node).joined().empty()) Violation("a member is still joined");
  }
}

void World::Handle(const Event& event) {
  now_ = event.time;
  const uint64_t head =
      (static_cast<uint64_t>(event.time) << 20) ^ (static_cast<uint64_t>(event.set) << 12) ^
      (static_cast<uint64_t>(event.rank) << 4) ^ static_cast<uint64_t>(event.what);
  outcome_.trace = (outcome_.trace ^ head) * 0x100000001b3ull;
  if (event.bytes) outcome_.trace = HashBytes(outcome_.trace, *event.bytes);
  switch (event.what) {
    case Happens::kGo:
      return OnGo(event.rank);
    case Happens::kAnnounced:
      return OnAnnounced(event);
    case Happens::kAlarm:
      return OnAlarm(event.set);
    case Happens::kResponse:
      return OnResponse(event);
  }
}

void World::OnAlarm(int set) {
  const auto desk = desks_.find(set);
  if (desk == desks_.end()) return;  // removed since
  desk->second.alarm = -1;
  Publish(set);
}

SetOutcome World::Run() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Handle(event);
  }
  for (const SetRank& rank : ranks_) {
    if (!rank.finished() || !rank.idle()) Violation("a rank waits for ever");
  }
  for (const auto& [set, desk] : desks_) CheckIdle(desk.tree);
  ledger_.Finish();
  outcome_.decisions = ledger_.decisions();
  outcome_.partial = ledger_.partial();
  outcome_.errors = ledger_.errors();
  outcome_.joins = ledger_.joins();
  return std::move(outcome_);
}

}  // namespace

SetOutcome SimulateSets(const SetProgram& program) { return World(program).Run(); }

}  // namespace hvd::negotiate
