// Many collectives of all kinds on one board or group: one after the other, several at once, on
// overlapping sets, advanced in any order.

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "check.h"
#include "collective/collective_reference.h"
#include "ranks.h"

namespace hvd::test {
namespace {

// A third of them is enough by default; HVD_TEST_FULL asks for all.
uint32_t Times(uint32_t full) {
  return std::getenv("HVD_TEST_FULL") != nullptr ? full : (full + 2) / 3;
}

bool IsRagged(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kReducescatter || kind == OpKind::kAlltoall;
}

int64_t Sum(const std::vector<int64_t>& numbers, size_t begin, size_t count) {
  const auto from = numbers.begin() + static_cast<int64_t>(begin);
  return std::accumulate(from, from + static_cast<int64_t>(count), int64_t{0});
}

// The same collective as every member of a set of `ranks` knows it, made from a seed.
struct Operation {
  OpKind kind;
  Reduction reduction;
  int root;
  // [piece][rank]: of its input, or of its part of the result; [piece][sender * ranks + receiver]:
  // alltoall
  std::vector<std::vector<int64_t>> elements;
  uint64_t seed;
  size_t ranks;

  Bytes Input(size_t piece, size_t rank) const {
    std::mt19937_64 random(seed * 64 + piece * 8 + rank);
    const auto& row = elements[piece];
    int64_t count = row[rank];
    if (kind == OpKind::kReducescatter) count = Sum(row, 0, ranks);
    if (kind == OpKind::kAlltoall) count = Sum(row, rank * ranks, ranks);
    return RandomTensor(reduction.dtype, count, Values::kExact, random);
  }

  Bytes Expected(size_t piece, size_t rank) const {
    if (kind == OpKind::kBroadcast) return Input(piece, static_cast<size_t>(root));
    std::vector<Bytes> inputs;
    for (size_t from = 0; from < ranks; ++from) inputs.push_back(Input(piece, from));
    if (kind == OpKind::kAllreduce) return Reduced(reduction, inputs);
    if (kind == OpKind::kReducescatter) return Slice(Reduced(reduction, inputs), piece, 0, rank);
    Bytes all;
    for (size_t from = 0; from < ranks; ++from) {
      const bool whole = kind == OpKind::kAllgather;
      const Bytes part = whole ? inputs[from] : Slice(inputs[from], piece, from * ranks, rank);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The part number `part` of a tensor whose parts have the sizes from `first` on.
  Bytes Slice(const Bytes& whole, size_t piece, size_t first, size_t part) const {
    const auto element = static_cast<int64_t>(SizeOf(reduction.dtype));
    const auto begin = whole.begin() + Sum(elements[piece], first, part) * element;
    return {begin, begin + elements[piece][first + part] * element};
  }
};

int64_t RandomCount(std::mt19937_64& random) {
  const int64_t scales[] = {4, 16, 1000, 9000, 60'000};
  return static_cast<int64_t>(random() % static_cast<uint64_t>(scales[random() % 5]));
}

Operation RandomOperation(uint64_t seed, int ranks) {
  std::mt19937_64 random(seed);
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kInt16, DataType::kUint8,
                                 DataType::kFloat64};
  constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kAllgather,     OpKind::kBroadcast,
                               OpKind::kBarrier,   OpKind::kReducescatter, OpKind::kAlltoall};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct};
  Operation result;
  result.kind = kKinds[random() % std::size(kKinds)];
  result.reduction = {kTypes[random() % 4], kOps[random() % 3], 1.0, 1.0, 1};
  result.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  result.seed = seed;
  result.ranks = static_cast<size_t>(ranks);
  const size_t sizes =
      result.kind == OpKind::kAlltoall ? result.ranks * result.ranks : result.ranks;
  const size_t pieces = result.kind == OpKind::kBarrier ? 0 : random() % 4;
  for (size_t piece = 0; piece < pieces; ++piece) {
    result.elements.emplace_back(sizes, RandomCount(random));
    if (!IsRagged(result.kind)) continue;
    for (int64_t& count : result.elements.back()) count = RandomCount(random);
  }
  return result;
}

// One member's part in an operation: its buffers, and whether they hold what they should.
class Part {
 public:
  Part(Operation operation, int position)
      : operation_(std::move(operation)), rank_(static_cast<size_t>(position)) {
    for (size_t piece = 0; piece < operation_.elements.size(); ++piece) {
      inputs_.push_back(operation_.Input(piece, rank_));
      expected_.push_back(operation_.Expected(piece, rank_));
      outputs_.emplace_back(expected_.back().size());
    }
  }

  CollectiveSpec Spec(uint64_t sequence) {
    CollectiveSpec spec;
    spec.kind = operation_.kind;
    spec.sequence = sequence;
    spec.reduction = operation_.reduction;
    spec.root = Position(operation_.root);
    const auto element = static_cast<int64_t>(SizeOf(operation_.reduction.dtype));
    std::vector<std::vector<int64_t>> bytes = operation_.elements;
    for (std::vector<int64_t>& row : bytes) {
      for (int64_t& one : row) one *= element;
    }
    for (size_t piece = 0; piece < inputs_.size(); ++piece) {
      spec.pieces.push_back({inputs_[piece].data(), outputs_[piece].data(),
                             static_cast<int64_t>(inputs_[piece].size())});
    }
    if (operation_.kind == OpKind::kAlltoall) {
      SetMatrices(bytes, static_cast<int>(rank_), static_cast<int>(operation_.ranks), &spec);
    } else if (IsRagged(operation_.kind)) {
      const bool gathers = operation_.kind == OpKind::kAllgather;
      for (auto& row : bytes) spec.shares.push_back(gathers ? Shares{{}, row} : Shares{row, {}});
    }
    return spec;
  }

  bool Check() const {
    if (outputs_ == expected_) return true;
    check::Fail(__FILE__, __LINE__,
                std::string(Name(operation_.kind)) + " " + std::to_string(operation_.seed) +
                    " on rank " + std::to_string(rank_) + " to give the right bytes");
    return false;
  }

 private:
  const Operation operation_;
  const size_t rank_;  // position in the set
  std::vector<Bytes> inputs_, outputs_, expected_;
};

void RunInARow(World* world, uint64_t operations) {
  RunRanks(world->size(), [&](int r) {
    Rank rank(world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world->Everybody(), &backend));
    for (uint64_t i = 0; i < operations; ++i) {
      Part part(RandomOperation(i, world->size()), r);
      ASSERT_OK(rank.Run(backend, part.Spec(i)));
      ASSERT_TRUE(part.Check());
    }
  });
}

TEST(Schedule, OperationsInARow) {
  for (Medium medium : AllMedia()) {
    for (int ranks : {2, 3}) {
      World world(medium, ranks);
      RunInARow(&world, Times(300));
    }
  }
}

TEST(Schedule, InARowOnHostsOfManyShapes) {
  for (const std::vector<int>& hosts : HostShapes()) {
    World world(Medium::kHosts, static_cast<int>(hosts.size()), hosts);
    RunInARow(&world, Times(100));
  }
}

// Who reports success knows that every member will: one member runs ahead, the other goes a step at
// a time.
TEST(Schedule, ALargeOperationEndsWhenEverybodyHasTheResult) {
  for (OpKind kind :
       {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kReducescatter}) {
    for (int ahead : {0, 1}) {
      World world(Medium::kInprocWindow, 2);
      std::unique_ptr<Rank> ranks[2];
      Backend* backends[2] = {};
      RunRanks(2, [&](int r) {
        ranks[r] = std::make_unique<Rank>(&world, r);
        ASSERT_OK(ranks[r]->Join(1, {0, 1}, &backends[r]));
      });
      const Operation operation{kind, {}, 0, {{100'000, 100'000}}, 1, 2};
      Part parts[] = {{operation, 0}, {operation, 1}};
      const auto first = backends[ahead]->Start(parts[ahead].Spec(0));
      const auto second = backends[1 - ahead]->Start(parts[1 - ahead].Spec(0));
      for (Step step = Step::kProgressed; step != Step::kDone;) {
        while ((step = first->Advance()) == Step::kProgressed) {
        }
        if (step != Step::kDone) second->Advance();
      }
      EXPECT_TRUE(parts[0].Check());
      EXPECT_TRUE(parts[1].Check());
    }
  }
}

// What one rank does with a set: starts the set's operations in their order.
struct Member {
  Backend* backend = nullptr;
  int ranks = 0;
  int position = 0;
  uint64_t next = 0;

  void Start(uint64_t seed, std::vector<std::unique_ptr<Part>>* parts, Machines* machines) {
    parts->push_back(std::make_unique<Part>(RandomOperation(seed + next, ranks), position));
    machines->push_back(backend->Start(parts->back()->Spec(next)));
    ++next;
  }
};

void RunSeveralAtOnce(World* world, uint32_t rounds) {
  RunRanks(world->size(), [&](int r) {
    Rank rank(world, r);
    Member member{nullptr, world->size(), r, 0};
    ASSERT_OK(rank.Join(1, world->Everybody(), &member.backend));
    for (uint32_t round = 0; round < rounds; ++round) {
      std::vector<std::unique_ptr<Part>> parts;
      Machines machines;
      for (int i = 0; i < 6; ++i) member.Start(1000, &parts, &machines);
      ASSERT_OK(rank.Drive(machines, 1 + round * 8 + static_cast<uint32_t>(r)));
      for (const auto& part : parts) ASSERT_TRUE(part->Check());
    }
  });
}

TEST(Schedule, SeveralAtOnceInAnyOrder) {
  for (Medium medium : AllMedia()) {
    for (int ranks : {2, 3, 4}) {
      World world(medium, ranks);
      RunSeveralAtOnce(&world, Times(25));
    }
  }
}

TEST(Schedule, SeveralAtOnceOnHostsOfManyShapes) {
  for (const std::vector<int>& hosts : HostShapes()) {
    World world(Medium::kHosts, static_cast<int>(hosts.size()), hosts);
    RunSeveralAtOnce(&world, Times(10));
  }
}

// The smallest chunks, few and many; and larger ones than a frame between hosts.
TEST(Schedule, OnBoardsOfEveryShape) {
  const BoardShape shapes[] = {BoardShape::Of(16 << 10, 2), BoardShape::Of(20'000, 16),
                               BoardShape::Of(1 << 20, 3)};
  for (const BoardShape& shape : shapes) {
    for (Medium medium : {Medium::kInprocWindow, Medium::kShmWindow}) {
      World world(medium, 3, {}, shape);
      RunInARow(&world, Times(100));
      RunSeveralAtOnce(&world, Times(10));
    }
    for (const std::vector<int>& hosts : HostShapes()) {
      World world(Medium::kHosts, static_cast<int>(hosts.size()), hosts, shape);
      RunInARow(&world, Times(50));
      RunSeveralAtOnce(&world, Times(5));
    }
  }
}

using Sets = std::vector<std::vector<int>>;

// Every rank starts the operations of the sets it is in in another order; one loop drives them all.
void RunOverlapping(World* world, const Sets& sets, uint32_t rounds) {
  RunRanks(world->size(), [&](int r) {
    Rank rank(world, r);
    std::vector<Member> joined;
    for (size_t set = 0; set < sets.size(); ++set) {
      const auto at = std::find(sets[set].begin(), sets[set].end(), r);
      if (at == sets[set].end()) continue;
      joined.push_back({nullptr, static_cast<int>(sets[set].size()),
                        static_cast<int>(at - sets[set].begin()), 0});
      ASSERT_OK(rank.Join(static_cast<uint32_t>(set), sets[set], &joined.back().backend));
    }
    std::mt19937 random(static_cast<uint32_t>(r));
    for (uint32_t round = 0; round < rounds; ++round) {
      std::vector<std::unique_ptr<Part>> parts;
      Machines machines;
      std::shuffle(joined.begin(), joined.end(), random);
      for (Member& member : joined) {
        for (int i = 0; i < 3; ++i)
          member.Start(5000 + 1000 * static_cast<uint64_t>(member.ranks), &parts, &machines);
      }
      ASSERT_OK(rank.Drive(machines, 1 + round * 8 + static_cast<uint32_t>(r)));
      for (const auto& part : parts) ASSERT_TRUE(part->Check());
    }
  });
}

TEST(Schedule, OverlappingSets) {
  const Sets sets{{0, 1, 2}, {3, 2, 1}, {0, 3}, {0, 1, 2, 3}};
  for (Medium medium : AllMedia()) {
    World world(medium, 4);
    RunOverlapping(&world, sets, Times(25));
  }
}

// Sets on one host, sets with a rank on each, and all between.
TEST(Schedule, OverlappingSetsOnHostsOfManyShapes) {
  const Sets of_four{{0, 1, 2}, {3, 1}, {0, 1}, {0, 1, 2, 3}};
  const Sets of_six{{0, 1, 2}, {5, 2, 0}, {1, 3, 4, 5}, {3, 4}, {0, 1, 2, 3, 4, 5}};
  for (const std::vector<int>& hosts : HostShapes()) {
    World world(Medium::kHosts, static_cast<int>(hosts.size()), hosts);
    RunOverlapping(&world, hosts.size() == 4 ? of_four : of_six, Times(10));
  }
}

// Starts a collective when the one before is done, as the engine does with those of one set.
class OneAfterTheOther : public StepMachine {
 public:
  explicit OneAfterTheOther(Member member, uint64_t seed) : member_(member), seed_(seed) {}

  Step TakeStep() override {
    if (machines_.empty() && member_.next == kOperations) return Step::kDone;
    if (machines_.empty()) member_.Start(seed_, &parts_, &machines_);
    const Step step = machines_[0]->Advance();
    if (step != Step::kDone) return step;
    parts_[0]->Check();
    machines_.clear();
    parts_.clear();
    return Step::kProgressed;
  }

  Status status() const override { return machines_[0]->status(); }

 private:
  static constexpr uint64_t kOperations = 25;

  Member member_;
  const uint64_t seed_;
  std::vector<std::unique_ptr<Part>> parts_;
  Machines machines_;
};

void RunSideBySide(World* world, const Sets& sets, uint64_t seed) {
  RunRanks(world->size(), [&](int r) {
    Rank rank(world, r);
    Machines machines;
    for (size_t set = 0; set < sets.size(); ++set) {
      const auto at = std::find(sets[set].begin(), sets[set].end(), r);
      if (at == sets[set].end()) continue;
      Member member{nullptr, static_cast<int>(sets[set].size()),
                    static_cast<int>(at - sets[set].begin()), 0};
      ASSERT_OK(rank.Join(static_cast<uint32_t>(set), sets[set], &member.backend));
      machines.push_back(std::make_unique<OneAfterTheOther>(member, seed * 10'000 + set * 1000));
    }
    ASSERT_OK(rank.Drive(machines, static_cast<uint32_t>(1 + seed * 4) + static_cast<uint32_t>(r)));
  });
}

// A rank that is through with a collective sends the next one's frames to ranks that are not, on
// links that other sets use.
TEST(Schedule, SetsThatShareLinksDoNotWaitInACircle) {
  const Sets sets{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {0, 1, 2}, {3, 1, 2}, {1, 0}, {2, 3}};
  for (Medium medium : AllMedia()) {
    for (uint64_t seed = 0; seed < Times(3); ++seed) {
      World world(medium, 4);
      RunSideBySide(&world, sets, seed);
    }
  }
}

TEST(Schedule, SetsOnHostsOfManyShapesDoNotWaitInACircle) {
  const Sets of_four{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {0, 3}, {2, 1}, {0, 1, 3}};
  const Sets of_six{{0, 1, 2, 3, 4, 5}, {5, 3, 1, 0, 2, 4}, {0, 2, 5}, {3, 2, 1}, {0, 1, 4, 5}};
  for (const std::vector<int>& hosts : HostShapes()) {
    World world(Medium::kHosts, static_cast<int>(hosts.size()), hosts);
    RunSideBySide(&world, hosts.size() == 4 ? of_four : of_six, 7);
  }
}

}  // namespace
}  // namespace hvd::test
