// Random programs of small allreduces, most of whose data travel with marks: of every type and
// operation, with and without names, alone and in groups, over sets that overlap.

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cluster.h"
#include "collective/collective_reference.h"

namespace hvd::test {
namespace {

constexpr int64_t kLimitUs = kPatienceMs * int64_t{1000};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

struct Operation {
  size_t set = 0;
  std::string name;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  std::vector<int64_t> elements;
};

// One that is under way: what each member brings, and what comes of it here.
struct Flight {
  const Operation* operation = nullptr;
  std::vector<std::vector<Bytes>> inputs;  // by member and tensor
  std::vector<Bytes> outputs;
  bool allocated = false;  // by the core
  HandlePtr handle;
};

class Program {
 public:
  Program(Engine* engine, int rank, std::vector<std::vector<int>> sets, uint32_t seed)
      : engine_(engine), rank_(rank), sets_(std::move(sets)), shared_(seed), own_(seed + rank) {}

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      if (round % 25 == 0) DrawStep(std::to_string(round));
      const bool more = shared_() % 20 == 0;  // this once
      if (more) step_.push_back(Draw("once " + std::to_string(round)));
      Operation& changed = step_[shared_() % step_.size()];
      const Operation usual = changed;
      if (shared_() % 10 == 0) Redraw(&changed);  // likewise
      OneStep();
      changed = usual;
      if (more) step_.pop_back();
    }
  }

 private:
  void DrawStep(const std::string& prefix) {
    step_.clear();
    const size_t count = 1 + shared_() % 5;
    for (size_t i = 0; i < count; ++i) step_.push_back(Draw(prefix + "." + std::to_string(i)));
    in_turn_ = shared_() % 2 == 0;
  }

  Operation Draw(const std::string& name) {
    Operation drawn;
    drawn.set = shared_() % sets_.size();
    if (shared_() % 3 > 0) drawn.name = name;
    drawn.dtype = static_cast<DataType>(shared_() % kDataTypes);
    drawn.op = kOps[shared_() % std::size(kOps)];
    if (drawn.dtype == DataType::kBool && drawn.op == ReduceOp::kAverage) drawn.op = ReduceOp::kMin;
    if (IsFloating(drawn.dtype) && drawn.op == ReduceOp::kSum && shared_() % 2 == 0)
      drawn.prescale = 0.5;
    const size_t tensors = 1 + (shared_() % 3 == 0 ? shared_() % 3 : 0);
    for (size_t t = 0; t < tensors; ++t)
      drawn.elements.push_back(static_cast<int64_t>(shared_() % (shared_() % 4 == 0 ? 200 : 20)));
    return drawn;
  }

  // Another operation of the same name.
  void Redraw(Operation* operation) {
    Operation drawn = Draw(operation->name);
    drawn.set = operation->set;
    drawn.name = operation->name;
    *operation = drawn;
  }

  // All at once, or one after the other. Names say which is which, order otherwise.
  void OneStep() {
    std::deque<Flight> flights;
    for (const Operation& operation : step_) flights.push_back(Prepare(operation));
    const auto named = [](const Flight& flight) { return !flight.operation->name.empty(); };
    if (std::all_of(flights.begin(), flights.end(), named) && !in_turn_ && own_() % 4 == 0)
      std::reverse(flights.begin(), flights.end());
    for (Flight& flight : flights) {
      Submit(&flight);
      if (in_turn_) Check(flight);
    }
    for (const Flight& flight : flights) {
      if (!in_turn_) Check(flight);
    }
  }

  Flight Prepare(const Operation& operation) {
    Flight flight;
    flight.operation = &operation;
    for (size_t m = 0; m < sets_[operation.set].size(); ++m) {
      std::vector<Bytes>& inputs = flight.inputs.emplace_back();
      for (const int64_t elements : operation.elements)
        inputs.push_back(RandomTensor(operation.dtype, elements, Values::kExact, shared_));
    }
    return flight;
  }

  void Submit(Flight* flight) {
    const Operation& operation = *flight->operation;
    const std::vector<int>& members = sets_[operation.set];
    const auto self = std::find(members.begin(), members.end(), rank_);
    if (self == members.end()) return;
    std::vector<Bytes>& inputs = flight->inputs[static_cast<size_t>(self - members.begin())];
    flight->outputs = inputs;
    const uint32_t memory = own_() % 3;
    flight->allocated = memory == 0;
    Entry entry;
    entry.process_set = static_cast<uint32_t>(operation.set);
    entry.request.name = operation.name;
    entry.request.reduce_op = operation.op;
    entry.request.prescale = operation.prescale;
    for (size_t t = 0; t < inputs.size(); ++t) {
      entry.request.tensors.push_back({operation.dtype, {operation.elements[t]}});
      const auto bytes = static_cast<int64_t>(inputs[t].size());
      Bytes& input = memory == 1 ? flight->outputs[t] : inputs[t];
      std::byte* const output = flight->allocated ? nullptr : flight->outputs[t].data();
      entry.buffers.push_back({input.data(), bytes, output, output == nullptr ? 0 : bytes});
    }
    entry.urgent = in_turn_;
    ASSERT_OK(engine_->Submit(std::move(entry), &flight->handle));
  }

  void Check(const Flight& flight) {
    if (flight.handle == nullptr) return;
    ASSERT_OK(engine_->Wait(flight.handle, kLimitUs, nullptr));
    const Operation& operation = *flight.operation;
    const auto members = static_cast<int64_t>(flight.inputs.size());
    const bool average = operation.op == ReduceOp::kAverage;
    const Reduction reduction{operation.dtype, operation.op, operation.prescale, 1.0,
                              average ? members : 1};
    for (size_t t = 0; t < operation.elements.size(); ++t) {
      std::vector<Bytes> column;
      for (const auto& inputs : flight.inputs) column.push_back(inputs[t]);
      const Bytes expected = Reduced(reduction, column);
      const std::byte* found =
          flight.allocated ? flight.handle->outputs[t].data.get() : flight.outputs[t].data();
      if (std::equal(expected.begin(), expected.end(), found)) continue;
      check::Fail(__FILE__, __LINE__,
                  std::string(Name(operation.dtype)) + " " + Name(operation.op) + " of " +
                      std::to_string(operation.elements[t]) + " elements of '" + operation.name +
                      "' on rank " + std::to_string(rank_) + " to be right");
    }
  }

  Engine* engine_;
  const int rank_;
  const std::vector<std::vector<int>> sets_;
  std::mt19937_64 shared_;
  std::mt19937_64 own_;
  std::vector<Operation> step_;
  bool in_turn_ = false;
};

std::vector<std::vector<int>> SetsOf(int size) {
  std::vector<std::vector<int>> sets = {{}, {0, size - 1}, {}};
  for (int rank = 0; rank < size; ++rank) sets[0].push_back(rank);
  for (int rank = size > 2 ? 1 : 0; rank < size; ++rank) sets[2].push_back(rank);
  if (size == 2) sets.resize(1);
  return sets;
}

void RunProgram(Wires wires, int size, uint32_t seed, std::vector<int> hosts = {}) {
  const std::vector<std::vector<int>> sets = SetsOf(size);
  Cluster cluster(size, wires, {sets.begin() + 1, sets.end()}, {}, std::move(hosts));
  cluster.Run([&](Engine& engine, int rank) {
    Program(&engine, rank, sets, seed).Run(150);
    EXPECT_TRUE(engine.CountersNow().at("carried") > 0);
  });
}

TEST(Carried, HasTheResultsOfWhatIsExchanged) {
  for (const Wires wires : kAllWires) {
    for (const int size : {2, 3, 4}) {
      for (const uint32_t seed : {1u, 2u, 3u}) RunProgram(wires, size, 10 * seed);
    }
  }
}

// What marks have carried could end at once, but not before what was decided before it.
TEST(Carried, EndsAfterWhatCameBeforeIt) {
  constexpr int kApart = 12;  // steps in which each is a batch of its own, so that this is learned
  for (const Wires wires : kAllWires) {
    Cluster cluster(3, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (int step = 0; step < 3 * kApart; ++step) {
        std::vector<float> large(300'000, static_cast<float>(rank));
        std::vector<float> small(3, static_cast<float>(rank + step));
        HandlePtr before;
        HandlePtr carried;
        ASSERT_OK(test::Submit(engine, AllreduceEntry("large", &large), &before));
        if (step < kApart) ASSERT_OK(engine.Wait(before, kLimitUs, nullptr));
        ASSERT_OK(test::Submit(engine, AllreduceEntry("small", &small), &carried));
        ASSERT_OK(engine.Wait(carried, kLimitUs, nullptr));
        EXPECT_TRUE(before->done.load());
        EXPECT_EQ(small.back(), static_cast<float>(3 + 3 * step));
        EXPECT_EQ(large.back(), 3.0f);
      }
      EXPECT_TRUE(engine.CountersNow().at("carried") > kApart);
    });
  }
}

TEST(Carried, HasThemOnHostsOfAnyShape) {
  const std::vector<std::vector<int>> shapes = {{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 2}};
  for (const std::vector<int>& hosts : shapes) {
    for (const uint32_t seed : {4u, 5u})
      RunProgram(Wires::kHosts, static_cast<int>(hosts.size()), 10 * seed, hosts);
  }
}

}  // namespace
}  // namespace hvd::test
