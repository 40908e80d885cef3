// Random programs, drawn alike on every rank: operations of all kinds over several process sets,
// some of which a rank asks for otherwise than the rest, and ranks that join one after the other.
// How each operation ends follows from who takes part in it.

#include <algorithm>
#include <optional>
#include <random>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};
constexpr int kBatches = 12;  // of operations that are in flight together
constexpr size_t kSteps = 6;  // so few that their ids are used again and again
constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kAllgather,     OpKind::kBroadcast,
                             OpKind::kAlltoall,  OpKind::kReducescatter, OpKind::kBarrier};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kProduct};

struct Set {
  uint32_t id;
  std::vector<int> members;
};

struct Step {
  OpKind kind;
  ReduceOp op;
  const Set* set;
  std::string name;
  int64_t rows;
  int root;
  // These change from one time to the next.
  std::vector<int> present;  // members that have not joined
  std::optional<int> odd;    // the rank that asks for another shape

  bool Has(int rank) const {
    return std::find(present.begin(), present.end(), rank) != present.end();
  }
  bool Fails() const {
    const bool differs = kind != OpKind::kBarrier && odd && Has(*odd) && present.size() > 1;
    return differs || (kind == OpKind::kBroadcast && !Has(root));
  }
};

// An operation of this rank.
struct Flight {
  Step step;
  std::vector<float> data;
  HandlePtr handle;
};

class Program {
 public:
  Program(Engine& engine, int rank, int size, unsigned seed)
      : engine_(engine), rank_(rank), size_(size), shared_(seed), own_(1000 * seed + rank) {}

  void Run() {
    AddSets();
    std::vector<Step> steps;
    for (size_t i = 0; i < kSteps; ++i) steps.push_back(DrawStep(std::to_string(i)));
    std::vector<int> until(size_);  // so many batches before it joins
    for (int& batches : until) batches = Draw(kBatches + 1);
    for (int batch = 0; batch < kBatches; ++batch) {
      std::shuffle(steps.begin(), steps.end(), shared_);
      std::vector<Flight> flights(1 + Draw(4));
      for (size_t i = 0; i < flights.size(); ++i) flights[i].step = Repeat(steps[i], batch, until);
      for (Flight& flight : flights) Submit(&flight);
      std::shuffle(flights.begin(), flights.end(), own_);
      for (Flight& flight : flights) Check(flight);
    }
    JoinAll();
    for (size_t s = 1; s < sets_.size(); ++s) ASSERT_OK(engine_.RemoveProcessSet(sets_[s].id));
  }

 private:
  int Draw(int below) { return static_cast<int>(shared_() % static_cast<unsigned>(below)); }

  void AddSets() {
    sets_ = {{0, {}}, {0, {}}, {0, {}}};
    for (int r = 0; r < size_; ++r) {
      sets_[0].members.push_back(r);
      for (size_t s = 1; s < sets_.size(); ++s) {
        if (r == static_cast<int>(s) % size_ || Draw(2) == 0) sets_[s].members.push_back(r);
      }
    }
    for (size_t s = 1; s < sets_.size(); ++s) {
      ASSERT_OK(engine_.AddProcessSet(sets_[s].members, &sets_[s].id));
    }
  }

  Step DrawStep(const std::string& name) {
    Step step;
    step.set = &sets_[Draw(static_cast<int>(sets_.size()))];
    step.kind = kKinds[Draw(std::size(kKinds))];
    step.op = kOps[Draw(std::size(kOps))];
    if (Draw(4) > 0) step.name = name;
    step.rows = Draw(3) == 0 ? 30000 : 3;
    step.root = step.set->members[Draw(static_cast<int>(step.set->members.size()))];
    return step;
  }

  Step Repeat(Step step, int batch, const std::vector<int>& until) {
    for (const int member : step.set->members) {
      if (batch < until[member]) step.present.push_back(member);
    }
    if (Draw(5) == 0) step.odd = Draw(size_);
    return step;
  }

  void Submit(Flight* flight) {
    const Step& step = flight->step;
    if (!step.Has(rank_)) return;
    const int64_t columns = step.odd == rank_ ? 2 : 1;
    const auto members = static_cast<int64_t>(step.set->members.size());
    const int64_t rows = step.kind == OpKind::kAlltoall ? members * step.rows : step.rows;
    flight->data.assign(static_cast<size_t>(rows * columns), static_cast<float>(rank_ + 1));
    Entry entry = AllreduceEntry(step.name, &flight->data, step.op, step.set->id);
    entry.urgent = own_() % 2 == 0;
    entry.request.kind = step.kind;
    entry.request.root = GlobalRank(step.root);
    entry.request.tensors[0].shape = {rows, columns};
    if (step.kind == OpKind::kAlltoall) entry.request.splits.assign(members, step.rows);
    if (step.kind == OpKind::kBarrier) entry.request.tensors.clear();
    if (step.kind == OpKind::kBarrier) entry.buffers.clear();
    const bool in_place = step.kind == OpKind::kAllreduce || step.kind == OpKind::kBroadcast;
    for (TensorBuffer& buffer : entry.buffers) buffer.output = in_place ? buffer.output : nullptr;
    ASSERT_OK(engine_.Submit(std::move(entry), &flight->handle));
  }

  void Check(const Flight& flight) {
    const Step& step = flight.step;
    if (flight.handle == nullptr) return;
    const Status status = engine_.Wait(flight.handle, kLimitUs, nullptr);
    if (step.Fails()) {
      EXPECT_EQ(status.code(), Code::kMismatch);
      return;
    }
    EXPECT_EQ(status.message(), "");
    if (!status.ok()) return;
    if (step.kind == OpKind::kAllreduce) EXPECT_EQ(flight.data.back(), Reduced(step));
    if (step.kind == OpKind::kBroadcast)
      EXPECT_EQ(flight.data.back(), static_cast<float>(step.root + 1));
    if (step.kind != OpKind::kAllgather) return;
    const auto present = static_cast<int64_t>(step.present.size());
    EXPECT_EQ(flight.handle->outputs[0].shape[0], present * step.rows);
  }

  static float Reduced(const Step& step) {
    float result = static_cast<float>(step.present[0] + 1);
    for (size_t i = 1; i < step.present.size(); ++i) {
      const auto other = static_cast<float>(step.present[i] + 1);
      if (step.op == ReduceOp::kSum) result += other;
      if (step.op == ReduceOp::kMin) result = std::min(result, other);
      if (step.op == ReduceOp::kProduct) result *= other;
    }
    return result;
  }

  void JoinAll() {
    std::vector<HandlePtr> joins;
    for (const uint32_t set : engine_.ProcessSets()) {
      Entry join;
      join.process_set = set;
      join.request.kind = OpKind::kJoin;
      ASSERT_OK(engine_.Submit(std::move(join), &joins.emplace_back()));
    }
    for (const HandlePtr& join : joins) ASSERT_OK(engine_.Wait(join, kLimitUs, nullptr));
  }

  Engine& engine_;
  const int rank_;
  const int size_;
  std::mt19937 shared_;
  std::mt19937 own_;
  std::vector<Set> sets_;
};

void RunTwo(Cluster* cluster, unsigned seed) {
  cluster->Run([&](Engine& engine, int rank) {
    for (unsigned epoch = 0; epoch < 2; ++epoch)
      Program(engine, rank, cluster->size(), 2 * seed + epoch).Run();
  });
}

TEST(Programs, EveryOperationEndsAsItsRanksSay) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Config config;
    config.cache_capacity = seed % 5 == 4 ? 2 : kUnbounded;
    const int size = 2 + static_cast<int>(seed % 3);
    Cluster cluster(size, kAllWires[seed % std::size(kAllWires)], {}, config);
    RunTwo(&cluster, seed);
  }
}

TEST(Programs, OnHostsOfManyShapes) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const std::vector<int>& hosts : HostShapes()) {
      Cluster cluster(static_cast<int>(hosts.size()), Wires::kHosts, {}, {}, hosts);
      RunTwo(&cluster, 100 + seed);
    }
  }
}

}  // namespace
}  // namespace hvd::test
