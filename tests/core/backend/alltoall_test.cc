#include <algorithm>
#include <cstring>
#include <random>

#include "check.h"
#include "ranks.h"

namespace hvd::test {
namespace {

using Bytes = std::vector<std::byte>;
using Matrices = std::vector<std::vector<int64_t>>;  // bytes, [piece][sender * ranks + receiver]

// What `from` sends to `to`: every word depends on its place and on everything that names the
// message.
Bytes Message(uint64_t sequence, size_t piece, int from, int to, int64_t bytes) {
  const uint64_t seed =
      ((sequence * 16 + piece) * 16 + static_cast<uint64_t>(from)) * 16 + static_cast<uint64_t>(to);
  Bytes message(static_cast<size_t>(bytes));
  for (size_t i = 0; i < message.size(); i += sizeof(uint64_t)) {
    const uint64_t word = ((i << 20) + seed + 1) * 0x9E3779B97F4A7C15u;
    std::memcpy(message.data() + i, &word, std::min(sizeof word, message.size() - i));
  }
  return message;
}

// One rank's buffers of one alltoall.
class Part {
 public:
  Part(const Matrices& matrices, int ranks, int rank, uint64_t sequence) {
    spec_.kind = OpKind::kAlltoall;
    spec_.sequence = sequence;
    SetMatrices(matrices, rank, ranks, &spec_);
    for (size_t piece = 0; piece < matrices.size(); ++piece) {
      Bytes input, expected;
      const auto add = [&](Bytes* all, int from, int to) {
        const int64_t bytes = matrices[piece][static_cast<size_t>(from * ranks + to)];
        const Bytes message = Message(sequence, piece, from, to, bytes);
        all->insert(all->end(), message.begin(), message.end());
      };
      for (int peer = 0; peer < ranks; ++peer) {
        add(&input, rank, peer);
        add(&expected, peer, rank);
      }
      inputs_.push_back(std::move(input));
      // One byte more, which must stay as it is.
      outputs_.emplace_back(expected.size() + 1, std::byte{0xA5});
      expected.push_back(std::byte{0xA5});
      expected_.push_back(std::move(expected));
    }
    for (size_t piece = 0; piece < matrices.size(); ++piece) {
      const auto bytes = static_cast<int64_t>(inputs_[piece].size());
      spec_.pieces.push_back({inputs_[piece].data(), outputs_[piece].data(), bytes});
    }
  }

  const CollectiveSpec& spec() const { return spec_; }
  bool Check() const {
    return std::equal(
        outputs_.begin(), outputs_.end(), expected_.begin(), [](const Bytes& a, const Bytes& b) {
          return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
        });
  }

 private:
  CollectiveSpec spec_;
  std::vector<Bytes> inputs_, outputs_, expected_;
};

void Run(Rank* rank, Backend* backend, const Matrices& matrices, int ranks, uint64_t sequence) {
  Part part(matrices, ranks, rank->rank(), sequence);
  ASSERT_OK(rank->Run(backend, part.spec()));
  EXPECT_TRUE(part.Check());
}

Matrices RandomMatrices(std::mt19937_64& random, int ranks) {
  const int64_t scales[] = {1, 24, 4096, 1 << 16, 1 << 18};
  Matrices matrices(random() % 4);
  for (auto& matrix : matrices) {
    const int64_t scale = scales[random() % 5];
    for (int pair = 0; pair < ranks * ranks; ++pair) {
      matrix.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random()) & (2 * scale - 1));
    }
  }
  return matrices;
}

Matrices Filled(size_t pieces, int ranks, int64_t bytes) {
  return Matrices(pieces, std::vector<int64_t>(static_cast<size_t>(ranks * ranks), bytes));
}

// Only one pair of ranks exchanges anything.
Matrices Lonely(int ranks, int from, int to, int64_t bytes) {
  Matrices matrices = Filled(1, ranks, 0);
  matrices[0][static_cast<size_t>(from * ranks + to)] = bytes;
  return matrices;
}

// Calls body(rank, backend) on every rank of a world of each medium.
template <typename Body>
void OnEverybody(const std::vector<int>& sizes, Body body) {
  for (Medium medium : AllMedia()) {
    for (int ranks : sizes) {
      World world(medium, ranks);
      RunRanks(ranks, [&](int r) {
        Rank rank(&world, r);
        Backend* backend = nullptr;
        ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
        body(&rank, backend, ranks);
      });
    }
  }
}

TEST(Alltoall, RaggedWithZeros) {
  OnEverybody({1, 2, 3, 4, 8}, [](Rank* rank, Backend* backend, int ranks) {
    std::mt19937_64 random(static_cast<uint64_t>(ranks));
    for (uint64_t round = 0; round < 12; ++round) {
      Run(rank, backend, RandomMatrices(random, ranks), ranks, round);
    }
  });
}

// At and around the sizes where another way of sending begins.
TEST(Alltoall, SizesAtTheEdges) {
  constexpr int64_t kSizes[] = {0,      1,       56,      57,      32'768, 65'536,
                                65'537, 131'072, 131'073, 262'144, 700'001};
  OnEverybody({2, 3}, [&](Rank* rank, Backend* backend, int ranks) {
    uint64_t sequence = 0;
    for (int64_t bytes : kSizes) {
      Run(rank, backend, Filled(1, ranks, bytes), ranks, sequence++);
      Run(rank, backend, Filled(3, ranks, bytes / 3), ranks, sequence++);
      Run(rank, backend, Lonely(ranks, ranks - 1, 0, bytes), ranks, sequence++);
      Run(rank, backend, Lonely(ranks, 1, 1, bytes), ranks, sequence++);
    }
    Run(rank, backend, {}, ranks, sequence);
  });
}

TEST(Alltoall, SeveralMegabytes) {
  OnEverybody({2, 4}, [](Rank* rank, Backend* backend, int ranks) {
    Run(rank, backend, Filled(1, ranks, 1 << 20), ranks, 0);
    Run(rank, backend, Lonely(ranks, 0, 1, 5'000'001), ranks, 1);
    Run(rank, backend, Filled(40, ranks, 9'999), ranks, 2);
  });
}

TEST(Alltoall, SeveralAtOnceInAnyOrder) {
  OnEverybody({2, 3, 4}, [](Rank* rank, Backend* backend, int ranks) {
    std::mt19937_64 random(static_cast<uint64_t>(ranks));
    uint64_t sequence = 0;
    for (uint32_t round = 0; round < 8; ++round) {
      std::vector<std::unique_ptr<Part>> parts;
      Machines machines;
      for (int i = 0; i < 5; ++i) {
        parts.push_back(
            std::make_unique<Part>(RandomMatrices(random, ranks), ranks, rank->rank(), sequence++));
        machines.push_back(backend->Start(parts.back()->spec()));
      }
      ASSERT_OK(rank->Drive(machines, 1 + round * 8 + static_cast<uint32_t>(rank->rank())));
      for (const auto& part : parts) ASSERT_TRUE(part->Check());
    }
  });
}

// Who reports success knows that every member will: one member runs ahead, the other goes a step at
// a time.
TEST(Alltoall, ALargeOneEndsWhenEverybodyHasTheResult) {
  for (int ahead : {0, 1}) {
    World world(Medium::kInprocWindow, 2);
    std::unique_ptr<Rank> ranks[2];
    Backend* backends[2] = {};
    RunRanks(2, [&](int r) {
      ranks[r] = std::make_unique<Rank>(&world, r);
      ASSERT_OK(ranks[r]->Join(1, {0, 1}, &backends[r]));
    });
    const Matrices matrices{{0, 400'000, 600'000, 0}};
    Part parts[] = {{matrices, 2, 0, 0}, {matrices, 2, 1, 0}};
    const auto first = backends[ahead]->Start(parts[ahead].spec());
    const auto second = backends[1 - ahead]->Start(parts[1 - ahead].spec());
    for (Step step = Step::kProgressed; step != Step::kDone;) {
      while ((step = first->Advance()) == Step::kProgressed) {
      }
      if (step != Step::kDone) second->Advance();
    }
    EXPECT_TRUE(parts[0].Check());
    EXPECT_TRUE(parts[1].Check());
  }
}

TEST(Alltoall, SizesThatDisagreeWithTheInputFail) {
  World world(Medium::kInprocWindow, 1);
  Rank rank(&world, 0);
  Backend* backend = nullptr;
  ASSERT_OK(rank.Join(1, {0}, &backend));
  CollectiveSpec spec;
  spec.kind = OpKind::kAlltoall;
  Bytes data(8);
  spec.pieces.push_back({data.data(), data.data(), 8});
  SetMatrices({{4}}, 0, 1, &spec);
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
  SetMatrices({{8}}, 0, 1, &spec);
  ASSERT_OK(rank.Run(backend, spec));
  spec.senders.clear();
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
  spec.shares.clear();
  EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
}

}  // namespace
}  // namespace hvd::test
