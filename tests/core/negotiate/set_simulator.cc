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

namespace hvd::negotiate {
namespace {

enum class Happens : uint8_t { kGo, kAnnounced, kAlarm, kResponse };

struct Event {
  Micros time;
  uint64_t order;  // of its creation: ties are broken alike on every machine
  Happens what;
  int rank;
  int set;
  std::shared_ptr<const std::string> bytes;
  std::vector<size_t> operations;  // announced by `bytes`
  bool joins;
  bool operator<(const Event& other) const {  // the earliest on top
    return std::tie(time, order) > std::tie(other.time, other.order);
  }
};

// The sequencer of a set with its links.
struct Desk {
  explicit Desk(const SequencerOptions& options) : sequencer(options) {
    for (const GlobalRank rank : options.members.ranks()) members.push_back(rank.value());
  }

  std::vector<int> members;
  Sequencer sequencer;
  std::map<int, Micros> to_sequencer;  // by rank: when the latest message arrives
  std::map<int, Micros> to_member;
  Micros alarm = -1;
};

class World {
 public:
  explicit World(const SetProgram& program);
  SetOutcome Run();

 private:
  void Plan(Micros time, Happens what, int rank, int set = -1,
            std::shared_ptr<const std::string> bytes = nullptr, std::vector<size_t> operations = {},
            bool joins = false);
  Micros Arrival(Micros* link);
  void Handle(const Event& event);
  void OnGo(int rank);
  void OnAnnounced(const Event& event);
  void OnAlarm(int set);
  void OnResponse(const Event& event);
  void Publish(int set);
  void Form(size_t epoch);
  void CheckIdle(const Sequencer& sequencer, const std::vector<int>& members);
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
    Plan(static_cast<Micros>(random_.Below(500)), Happens::kGo, rank);
  }
  SequencerOptions options = program.options;
  options.members = Members(program.epochs[0].sets.at(0));
  desks_.emplace(0, std::move(options));
  ledger_.Formed(0, 0);
}

void World::Plan(Micros time, Happens what, int rank, int set,
                 std::shared_ptr<const std::string> bytes, std::vector<size_t> operations,
                 bool joins) {
  events_.push({time, order_++, what, rank, set, std::move(bytes), std::move(operations), joins});
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
    Plan(Arrival(&desk->second.to_sequencer[rank]), Happens::kAnnounced, rank, mail.set,
         std::make_shared<std::string>(std::move(mail.bytes)), std::move(mail.operations),
         mail.joins);
  }
  if (!member.waiting()) Plan(now_ + static_cast<Micros>(random_.Below(200)), Happens::kGo, rank);
}

void World::OnAnnounced(const Event& event) {
  const auto desk = desks_.find(event.set);
  if (desk == desks_.end()) return Violation("a message to a removed set");
  AnnounceMessage message;
  const Status decoded = Decode(*event.bytes, &message);
  if (!decoded.ok()) Violation(decoded.message());
  if (message.joins != event.joins) Violation("a join was lost");
  ledger_.Announced(event.set, event.rank, event.operations);
  if (event.joins) ledger_.Joined(event.set, event.rank);
  const std::vector<int>& members = desk->second.members;
  const auto member =
      std::lower_bound(members.begin(), members.end(), event.rank) - members.begin();
  const Status announced =
      desk->second.sequencer.Announce(Position(static_cast<int>(member)), std::move(message), now_);
  if (!announced.ok()) Violation(announced.message());
  Publish(event.set);
}

void World::OnResponse(const Event& event) {
  SetRank& member = ranks_[static_cast<size_t>(event.rank)];
  const bool waited = member.waiting();
  member.Receive(event.set, *event.bytes);
  if (waited && !member.waiting())
    Plan(now_ + static_cast<Micros>(random_.Below(200)), Happens::kGo, event.rank);
}

void World::Publish(int set) {
  Desk& desk = desks_.at(set);
  while (auto response = desk.sequencer.Next(now_)) {
    ledger_.Published(set, *response);
    auto bytes = std::make_shared<std::string>();
    Encode(*response, bytes.get());
    for (int rank : desk.members) {
      Plan(Arrival(&desk.to_member[rank]), Happens::kResponse, rank, set, bytes);
    }
    if (set == 0 && ledger_.epochs() > formed_) Form(formed_++);
  }
  const Micros deadline = desk.sequencer.Deadline();
  if (deadline < 0 || (desk.alarm >= 0 && desk.alarm <= deadline)) return;
  desk.alarm = std::max(deadline, now_);
  Plan(desk.alarm, Happens::kAlarm, -1, set);
}

// The barrier of an epoch is decided: every rank has done with the sets that go.
void World::Form(size_t epoch) {
  const std::map<int, std::vector<int>>& sets = program_.epochs[epoch].sets;
  for (auto desk = desks_.begin(); desk != desks_.end();) {
    const bool removed = sets.count(desk->first) == 0;
    if (removed) CheckIdle(desk->second.sequencer, desk->second.members);
    outcome_.removed += removed;
    desk = removed ? desks_.erase(desk) : std::next(desk);
  }
  for (const auto& [set, members] : sets) {
    if (desks_.count(set) > 0) continue;
    SequencerOptions options = program_.options;
    options.members = Members(members);
    desks_.emplace(set, std::move(options));
    ledger_.Formed(set, epoch);
  }
}

void World::CheckIdle(const Sequencer& sequencer, const std::vector<int>& members) {
  if (!sequencer.Pending().empty() || sequencer.Deadline() != -1)
    Violation("a sequencer is not idle");
  for (size_t m = 0; m < members.size(); ++m) {
    if (sequencer.joined(Position(static_cast<int>(m)))) Violation("a member is still joined");
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
  for (const auto& [set, desk] : desks_) CheckIdle(desk.sequencer, desk.members);
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
