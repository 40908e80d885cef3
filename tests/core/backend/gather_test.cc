#include <atomic>
#include <numeric>
#include <random>

#include "check.h"
#include "ranks.h"

namespace hvd::test {
namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 5, 8};

using Bytes = std::vector<std::byte>;
using Ragged = std::vector<std::vector<int64_t>>;  // bytes, [piece][rank]

Bytes Part(size_t piece, int rank, int64_t bytes) {
  const uint64_t seed = piece * 1000 + static_cast<uint64_t>(rank);
  Bytes part(static_cast<size_t>(bytes));
  // Fibonacci hashing: every byte depends on its place, its piece and its rank.
  for (size_t i = 0; i < part.size(); ++i) {
    part[i] = static_cast<std::byte>((((i << 16) + seed + 1) * 0x9E3779B97F4A7C15u) >> 56);
  }
  return part;
}

Bytes Expected(const Ragged& sizes, size_t piece) {
  Bytes all;
  for (size_t rank = 0; rank < sizes[piece].size(); ++rank) {
    const Bytes part = Part(piece, static_cast<int>(rank), sizes[piece][rank]);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void Gather(Rank* rank, Backend* backend, const Ragged& sizes, uint64_t sequence) {
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
  CollectiveSpec spec;
  spec.kind = OpKind::kAllgather;
  spec.sequence = sequence;
  for (const std::vector<int64_t>& row : sizes) spec.shares.push_back({{}, row});
  for (size_t piece = 0; piece < sizes.size(); ++piece) {
    inputs.push_back(Part(piece, rank->rank(), sizes[piece][rank->rank()]));
    outputs.emplace_back(
        static_cast<size_t>(std::accumulate(sizes[piece].begin(), sizes[piece].end(), int64_t{0})));
    spec.pieces.push_back(
        {inputs[piece].data(), outputs[piece].data(), static_cast<int64_t>(inputs[piece].size())});
  }
  ASSERT_OK(rank->Run(backend, spec));
  for (size_t piece = 0; piece < sizes.size(); ++piece)
    EXPECT_TRUE(outputs[piece] == Expected(sizes, piece));
}

Ragged RandomSizes(std::mt19937_64& random, int ranks) {
  const int64_t scales[] = {1, 64, 4096, 1 << 18};
  Ragged sizes(random() % 4);
  for (auto& row : sizes) {
    const int64_t scale = scales[random() % 4];
    for (int rank = 0; rank < ranks; ++rank) {
      row.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random()) & (2 * scale - 1));
    }
  }
  return sizes;
}

TEST(Allgather, RaggedWithZeros) {
  for (Medium medium : AllMedia()) {
    for (int ranks : kRanks) {
      if (!IsTried(medium, ranks)) continue;
      World world(medium, ranks);
      RunRanks(ranks, [&](int r) {
        Rank rank(&world, r);
        Backend* backend = nullptr;
        ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
        std::mt19937_64 random(static_cast<uint64_t>(ranks));
        for (uint64_t round = 0; round < 12; ++round)
          Gather(&rank, backend, RandomSizes(random, ranks), round);
        const auto size = static_cast<size_t>(ranks);
        Gather(&rank, backend, Ragged(1, std::vector<int64_t>(size, 0)), 100);
        Gather(&rank, backend, Ragged(3, std::vector<int64_t>(size, 1)), 101);
        std::vector<int64_t> last(size, 0);
        last.back() = 1'000'001;
        Gather(&rank, backend, {last}, 102);
      });
    }
  }
}

// Besides the usual shapes: a host for every rank, and hosts whose ranks lie anywhere among all.
std::vector<std::vector<int>> ManyHostShapes() {
  std::vector<std::vector<int>> shapes = HostShapes();
  shapes.insert(shapes.end(), {{0, 1, 2}, {0, 1, 0, 2, 1}, {0, 0, 0, 1}, {0, 1, 2, 3, 4, 4}});
  return shapes;
}

TEST(Allgather, OnHostsOfManyShapes) {
  for (const std::vector<int>& hosts : ManyHostShapes()) {
    const auto ranks = static_cast<int>(hosts.size());
    World world(Medium::kHosts, ranks, hosts);
    RunRanks(ranks, [&](int r) {
      Rank rank(&world, r);
      Backend* backend = nullptr;
      ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
      std::mt19937_64 random(hosts.size());
      for (uint64_t round = 0; round < 8; ++round)
        Gather(&rank, backend, RandomSizes(random, ranks), round);
      for (int only = 0; only < ranks; ++only) {
        std::vector<int64_t> row(hosts.size(), 0);
        row[static_cast<size_t>(only)] = 700'001;
        Gather(&rank, backend, {row}, 100 + static_cast<uint64_t>(only));
      }
    });
  }
}

TEST(Allgather, SizesThatDisagreeWithTheInputFail) {
  World world(Medium::kInprocWindow, 1);
  Rank rank(&world, 0);
  Backend* backend = nullptr;
  ASSERT_OK(rank.Join(1, {0}, &backend));
  CollectiveSpec spec;
  spec.kind = OpKind::kAllgather;
  Bytes data(8);
  spec.pieces.push_back({data.data(), data.data(), 8});
  spec.shares = {{{}, {4}}};
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
  spec.shares.clear();
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
}

void Broadcast(Rank* rank, Backend* backend, int root, const std::vector<int64_t>& sizes,
               uint64_t sequence) {
  const bool in_place = sequence % 2 == 0;
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
  CollectiveSpec spec;
  spec.kind = OpKind::kBroadcast;
  spec.sequence = sequence;
  spec.root = Position(root);
  for (size_t piece = 0; piece < sizes.size(); ++piece) {
    inputs.push_back(Part(piece, rank->rank(), sizes[piece]));
    outputs.push_back(in_place ? inputs.back() : Bytes(inputs.back().size()));
    const std::byte* input = in_place ? outputs.back().data() : inputs[piece].data();
    spec.pieces.push_back({input, outputs.back().data(), sizes[piece]});
  }
  ASSERT_OK(rank->Run(backend, spec));
  for (size_t piece = 0; piece < sizes.size(); ++piece) {
    EXPECT_TRUE(outputs[piece] == Part(piece, root, sizes[piece]));
  }
}

TEST(Broadcast, EveryRoot) {
  const std::vector<std::vector<int64_t>> shapes = {{},
                                                    {0},
                                                    {1},
                                                    {56},
                                                    {57},
                                                    {4097},
                                                    {32768},
                                                    {65536},
                                                    {65537},
                                                    {1'000'003},
                                                    {5, 0, 70'000, 1, 300'000},
                                                    {3, 0, 9}};
  for (Medium medium : AllMedia()) {
    for (int ranks : kRanks) {
      if (!IsTried(medium, ranks)) continue;
      World world(medium, ranks);
      RunRanks(ranks, [&](int r) {
        Rank rank(&world, r);
        Backend* backend = nullptr;
        ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
        uint64_t sequence = 0;
        for (int root = 0; root < ranks; ++root) {
          for (const auto& sizes : shapes) Broadcast(&rank, backend, root, sizes, sequence++);
        }
      });
    }
  }
}

// Along trees and chains of hosts.
TEST(Broadcast, OnHostsOfManyShapes) {
  const std::vector<std::vector<int64_t>> shapes = {
      {131'072}, {131'073}, {300'000, 0, 7}, {3'000'000}, {1'000'000, 1, 2'000'003}};
  for (const std::vector<int>& hosts : ManyHostShapes()) {
    const auto ranks = static_cast<int>(hosts.size());
    World world(Medium::kHosts, ranks, hosts);
    RunRanks(ranks, [&](int r) {
      Rank rank(&world, r);
      Backend* backend = nullptr;
      ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
      uint64_t sequence = 0;
      for (int root = 0; root < ranks; ++root) {
        const size_t first = sequence++ % shapes.size();
        Broadcast(&rank, backend, root, shapes[first], sequence++);
        Broadcast(&rank, backend, root, shapes[(first + 2) % shapes.size()], sequence++);
      }
    });
  }
}

TEST(Broadcast, RootOutsideTheSetFails) {
  World world(Medium::kInprocWindow, 1);
  Rank rank(&world, 0);
  Backend* backend = nullptr;
  ASSERT_OK(rank.Join(1, {0}, &backend));
  CollectiveSpec spec;
  spec.kind = OpKind::kBroadcast;
  spec.root = Position(1);
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
}

TEST(Barrier, NobodyLeavesBeforeAllHaveCome) {
  for (Medium medium : AllMedia()) {
    for (int ranks : kRanks) {
      if (!IsTried(medium, ranks)) continue;
      World world(medium, ranks);
      std::atomic<int> come{0};
      RunRanks(ranks, [&](int r) {
        Rank rank(&world, r);
        Backend* backend = nullptr;
        ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
        CollectiveSpec spec;
        spec.kind = OpKind::kBarrier;
        for (int round = 0; round < 20; ++round) {
          if ((round + r) % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
          come.fetch_add(1);
          spec.sequence = static_cast<uint64_t>(2 * round);
          ASSERT_OK(rank.Run(backend, spec));
          EXPECT_TRUE(come.load() >= (round + 1) * ranks);
        }
      });
    }
  }
}

}  // namespace
}  // namespace hvd::test
