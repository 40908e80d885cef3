// Random programs on random trees, whose ranks follow schedules and leave them.

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "negotiate/epoch.h"
#include "negotiate/marks.h"
#include "random.h"
#include "requests.h"
#include "sim_tree.h"

namespace hvd::negotiate {
namespace {

void ExpectOk(const Status& status) { EXPECT_EQ(status.message(), ""); }

// A program: steps of operations, of which each rank does the first so many, and then joins. Now
// and then it begins a step before the latest one is complete, so the names alternate.
struct Program {
  explicit Program(uint64_t seed) : random(seed) {
    const auto names = 1 + random.Below(5);
    const auto unnamed = random.Below(3);
    const auto count = 20 + random.Below(60);
    for (uint64_t s = 0; s < count; ++s) {
      std::vector<Request>& step = steps.emplace_back();
      for (uint64_t n = 0; n < names; ++n)
        step.push_back(Allreduce("w" + std::to_string(2 * n + s % 2)));
      for (uint64_t u = 0; u < unnamed; ++u) step.push_back(u == 1 ? Barrier() : Allreduce(""));
      if (random.OneIn(8))
        step.push_back(Allreduce("odd" + std::to_string(2 * random.Below(2) + s % 2)));
    }
  }
  Random random;
  std::vector<std::vector<Request>> steps;
};

struct Operation {
  Request request;
  uint64_t ordinal;
  size_t step;
};

class World;

// A rank: its member and, if it has one, its node of the tree.
class Rank {
 public:
  Rank(World* world, int rank, size_t steps) : world_(world), rank_(rank), steps_(steps) {}

  int node = -1;
  std::deque<std::string> responses;  // on their way to it
  bool finished() const { return finished_; }
  bool follows() const { return epoch_.has_value(); }
  uint64_t epochs() const { return epochs_; }
  size_t ran() const { return ran_; }

  void Submit();
  void Look();
  void Hear(const std::string& bytes);

 private:
  void WaitInVain();
  void Announce(const Operation& operation);
  void Place(const Operation& operation);
  void Publish();
  Marks HearMarks();
  void Run(uint64_t last);
  void Finish(const std::string& name, uint64_t ordinal);
  void Leave();
  void Send(AnnounceMessage message);

  World* world_;
  const int rank_;
  const size_t steps_;
  size_t step_ = 0;
  size_t next_ = 0;
  std::vector<size_t> order_;
  std::vector<Operation> undecided_;
  uint64_t ordinal_ = 0;
  ResponseCache cache_{100};
  uint64_t epochs_ = 0;
  std::optional<Epoch<Operation>> epoch_;
  Batches batches_;
  std::vector<Marks> heard_;  // by rank
  bool departs_ = false;
  bool joined_ = false;
  bool finished_ = false;
  uint64_t number_ = 0;
  size_t ran_ = 0;  // operations by schedule
};

class World {
 public:
  World(uint64_t seed, int ranks, int few)
      : program(seed),
        options(OptionsFor(ranks)),
        topology(HostsOf(&program.random, ranks), true),
        tree(options, topology, few) {
    int node = 0;
    for (int r = 0; r < ranks; ++r) {
      const uint64_t fewer = program.random.OneIn(3) ? program.random.Below(3) : 0;
      this->ranks.emplace_back(this, r, program.steps.size() - fewer);
      if (!topology.TreePlaceOf(Position(r), few).children.empty()) {
        this->ranks.back().node = node++;
        leaders.push_back(r);
      }
    }
    up.resize(static_cast<size_t>(ranks) + leaders.size());
    marks.resize(static_cast<size_t>(ranks));
  }

  void Run() {
    for (int turn = 0; turn < 2'000'000; ++turn) {
      now += static_cast<Micros>(random().Below(40));
      const bool done =
          std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.finished(); });
      if (done) return;
      Turn();
    }
    check::Fail(__FILE__, __LINE__, "some rank waits for ever");
  }

  // From a member, or from a node (behind all members).
  void Send(size_t link, const AnnounceMessage& message) {
    Encode(message, &up[link].emplace_back());
  }
  void SendDown(int node, const std::string& bytes) {
    for (const SimTree::Target& to : tree.ChildrenOf(node)) {
      const int rank = to.member >= 0 ? to.member : leaders[static_cast<size_t>(to.node)];
      if (ranks[static_cast<size_t>(rank)].node == node) continue;  // it has heard
      ranks[static_cast<size_t>(rank)].responses.push_back(bytes);
    }
  }
  void Take(int node, std::vector<AnnounceMessage> messages) {
    for (const AnnounceMessage& message : messages)
      Send(ranks.size() + static_cast<size_t>(node), message);
  }
  void TakeIn(SimTree::Place at, AnnounceMessage message) {
    const Rank& leader = ranks[static_cast<size_t>(leaders[static_cast<size_t>(at.node)])];
    if (leader.follows() && message.epoch == leader.epochs() && message.waits_for == 0) {
      early.emplace_back(at, std::move(message));
      return;
    }
    std::vector<AnnounceMessage> merged;
    ExpectOk(tree.Announce(at, std::move(message), now, &merged));
    Take(at.node, std::move(merged));
  }
  void Resume(int node, uint64_t batches, uint64_t unnamed) {
    if (node == SimTree::kRoot) {
      tree.root().Resume(batches, unnamed);
    } else {
      tree.Resume(node, unnamed);
    }
    for (auto& [at, message] : std::exchange(early, {})) TakeIn(at, std::move(message));
  }
  Random& random() { return program.random; }

  Program program;
  const SequencerOptions options;
  const Topology topology;
  SimTree tree;
  std::deque<Rank> ranks;
  std::vector<int> leaders;  // by node
  std::vector<std::deque<std::string>> up;
  std::vector<std::pair<SimTree::Place, AnnounceMessage>> early;
  std::vector<Marks> marks;  // by rank, as published
  Micros now = 0;

 private:
  static SequencerOptions OptionsFor(int ranks) {
    SequencerOptions options;
    options.members = Members::Everybody(ranks);
    options.batch_bytes = 64;
    return options;
  }
  static std::vector<int> HostsOf(Random* random, int ranks) {
    std::vector<int> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(static_cast<int>(random->Below(4)));
    return hosts;
  }

  void Turn() {
    Rank& rank = ranks[random().Below(ranks.size())];
    switch (random().Below(4)) {
      case 0:
        return rank.Submit();
      case 1:
        return rank.Look();
      case 2:
        if (rank.responses.empty()) return;
        rank.Hear(std::string(rank.responses.front()));
        return rank.responses.pop_front();
      default:
        return Deliver(random().Below(up.size()));
    }
  }

  void Deliver(size_t link) {
    if (!up[link].empty()) {
      AnnounceMessage message;
      ExpectOk(Decode(up[link].front(), &message));
      up[link].pop_front();
      const bool member = link < ranks.size();
      TakeIn(member ? tree.PlaceOf(static_cast<int>(link))
                    : tree.ParentOf(static_cast<int>(link - ranks.size())),
             std::move(message));
    }
    if (ranks[0].follows()) return;
    while (auto response = tree.root().Next(now)) {
      std::string bytes;
      Encode(*response, &bytes);
      ranks[0].Hear(bytes);
    }
  }
};

void Rank::Send(AnnounceMessage message) {
  message.epoch = epochs_;
  world_->Send(static_cast<size_t>(rank_), message);
}

void Rank::Submit() {
  if (joined_ || finished_) return;
  if (step_ == steps_) {
    if (!undecided_.empty()) return WaitInVain();
    joined_ = departs_ = true;
    AnnounceMessage message;
    message.joins = true;
    if (!epoch_) Send(std::move(message));
    return;
  }
  const std::vector<Request>& step = world_->program.steps[step_];
  if (next_ == step.size()) {
    const bool ahead = !undecided_.empty();
    if (ahead && (undecided_.front().step < step_ || !world_->random().OneIn(200)))
      return WaitInVain();
    ++step_;
    next_ = 0;
    return;
  }
  if (next_ == 0) {
    order_.resize(step.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    world_->random().Shuffle(&order_);
    std::stable_partition(order_.begin(), order_.end(),
                          [&](size_t i) { return !step[i].name.empty(); });
    // The unnamed ones keep their order: that is what matches them.
    std::sort(
        std::find_if(order_.begin(), order_.end(), [&](size_t i) { return step[i].name.empty(); }),
        order_.end());
  }
  const Request& request = step[order_[next_++]];
  undecided_.push_back({request, request.name.empty() ? ++ordinal_ : 0, step_});
  const Operation operation = undecided_.back();
  if (epoch_) return Place(operation);
  Announce(operation);
}

void Rank::WaitInVain() {
  if (epoch_ && !epoch_->Ready() && world_->random().OneIn(10)) departs_ = true;
}

void Rank::Announce(const Operation& operation) {
  Announcement announcement = Full(operation.request, operation.ordinal);
  announcement.id = cache_.Find(operation.request);
  if (announcement.id != kNoId) announcement.request = {};
  Send(Message({announcement}));
}

void Rank::Place(const Operation& operation) {
  const auto place = epoch_->Next(cache_.Find(operation.request), operation.ordinal != 0);
  departs_ = departs_ || !place;
  if (!departs_) epoch_->Fill(*place, operation);
}

void Rank::Finish(const std::string& name, uint64_t ordinal) {
  const auto found =
      std::find_if(undecided_.begin(), undecided_.end(), [&](const Operation& operation) {
        return operation.ordinal == ordinal && operation.request.name == name;
      });
  if (found == undecided_.end())
    return check::Fail(__FILE__, __LINE__, "'" + name + "' is not pending");
  undecided_.erase(found);
}

void Rank::Hear(const std::string& bytes) {
  Response response;
  ExpectOk(Decode(bytes, &response));
  EXPECT_EQ(response.number, ++number_);
  EXPECT_FALSE(follows());
  if (node > SimTree::kRoot) ExpectOk(world_->tree.Pass(node, response));
  for (const Decision& decision : EachOf(response)) {
    EXPECT_EQ(decision.error, "");
    EXPECT_TRUE(!joined_ || decision.partial);
    const Operation* own = nullptr;
    for (const Operation& operation : undecided_) {
      if (decision.ordinal != 0 && operation.ordinal == decision.ordinal) own = &operation;
      if (decision.ordinal == 0 && operation.request.name == decision.name) own = &operation;
    }
    if (!decision.known) {
      ExpectOk(cache_.Learn(decision.id, own != nullptr ? own->request : *decision.request));
    }
    if (!joined_) Finish(cache_.At(decision.id).name, decision.ordinal);
  }
  if (node >= 0) world_->SendDown(node, bytes);
  if (response.last_joined.known()) {
    EXPECT_TRUE(joined_);
    finished_ = true;
  }
  if (response.schedule.empty()) return;
  ++epochs_;
  // Some batches carry data, so that nobody is ready for one behind it before it has run.
  std::vector<size_t> payloads;
  for (const std::vector<Slot>& batch : response.schedule.batches)
    payloads.push_back(batch.front().id % 3 == 0 ? 8 : 0);
  epoch_.emplace(response.schedule, cache_.size(), batches_.base());
  batches_.Begin(std::move(payloads));
  heard_.assign(world_->ranks.size(), {batches_.base(), kNoEnd});
  world_->marks[static_cast<size_t>(rank_)] = {batches_.base(), kNoEnd};
  departs_ = joined_;
  for (const Operation& operation : undecided_) Place(operation);
}

void Rank::Look() {
  if (!epoch_) return;
  Publish();
  const Marks all = HearMarks();
  EXPECT_TRUE(all.ready >= epoch_->passed());
  Run(all.ready);
  if (all.over()) Leave();
}

void Rank::Publish() {
  Marks& own = world_->marks[static_cast<size_t>(rank_)];
  if (own.end != kNoEnd) return;
  if (departs_) return void(own.end = own.ready);
  own.ready = std::min(epoch_->complete(), batches_.Reach(epoch_->passed()));
}

// Of some of the others only what they published some time ago.
Marks Rank::HearMarks() {
  Marks& own = world_->marks[static_cast<size_t>(rank_)];
  Marks all = own;
  for (size_t rank = 0; rank < heard_.size(); ++rank) {
    const Marks& marks = world_->marks[rank];
    if (marks.ready >= batches_.base() && world_->random().OneIn(2)) heard_[rank] = marks;
    if (rank != static_cast<size_t>(rank_)) all.Add(heard_[rank]);
  }
  if (all.end == kNoEnd || own.end != kNoEnd || world_->random().OneIn(2)) return all;
  own.end = own.ready;
  all.Add(own);
  return all;
}

void Rank::Run(uint64_t last) {
  while (epoch_->passed() < last) {
    epoch_->Pass([&](const Slot& slot, const Operation& operation) {
      EXPECT_EQ(slot.id, cache_.Find(operation.request));
      Finish(operation.request.name, operation.ordinal);
      ++ran_;
    });
  }
}

void Rank::Leave() {
  const uint64_t batches = epoch_->passed() - batches_.base();
  const uint64_t unnamed = epoch_->unnamed();
  batches_.End(epoch_->passed());
  epoch_.reset();
  departs_ = false;
  if (node >= 0) world_->Resume(node, batches, unnamed);
  for (const Operation& operation : undecided_) Announce(operation);
  if (!joined_) return;
  AnnounceMessage message;
  message.joins = true;
  Send(std::move(message));
}

TEST(Following, RandomProgramsOnTrees) {
  size_t ran = 0;
  uint64_t epochs = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    World world(seed, 2 + static_cast<int>(seed % 7), seed % 3 == 0 ? Topology::kFewHosts : 1);
    world.Run();
    ran += world.ranks[0].ran();
    epochs += world.ranks[0].epochs();
  }
  EXPECT_TRUE(epochs > 300);
  EXPECT_TRUE(ran > 3000);
}

}  // namespace
}  // namespace hvd::negotiate
