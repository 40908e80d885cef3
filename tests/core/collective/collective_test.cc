// The parts that the collectives are made of.

#include <cstring>
#include <set>
#include <vector>

#include "base/tree.h"
#include "check.h"
#include "collective/piece_stream.h"
#include "collective/scratch.h"
#include "collective/transport_collectives.h"
#include "collective/window/board.h"
#include "transport/inproc/fabric.h"
#include "transport/transport_ranks.h"

namespace hvd::test {
namespace {

Piece At(char* input, char* output, int64_t bytes) {
  return {reinterpret_cast<const std::byte*>(input), reinterpret_cast<std::byte*>(output), bytes};
}

TEST(PieceStream, CutsAcrossPiecesAndSkipsEmptyOnes) {
  char a[] = "abc";
  char b[] = "defgh";
  char out_a[4] = {};
  char out_b[6] = {};
  const PieceStream stream(
      {At(nullptr, nullptr, 0), At(a, out_a, 3), At(nullptr, nullptr, 0), At(b, out_b, 5)});
  EXPECT_EQ(stream.bytes(), 8);
  char packed[9] = {};
  stream.Pack(2, 7, reinterpret_cast<std::byte*>(packed));
  EXPECT_EQ(std::string(packed), "cdefg");
  stream.Unpack(1, 6, reinterpret_cast<const std::byte*>("VWXYZ"));
  EXPECT_EQ(std::string(out_a + 1), "VW");
  EXPECT_EQ(std::string(out_b), "XYZ");
  stream.Keep(0, 8);
  EXPECT_EQ(std::string(out_a) + out_b, "abcdefgh");
  int visits = 0;
  stream.ForEach(3, 3, [&](const std::byte*, std::byte*, int64_t, int64_t) { ++visits; });
  EXPECT_EQ(visits, 0);
}

TEST(PieceStream, OfNothing) {
  const PieceStream stream(std::vector<Piece>{});
  EXPECT_EQ(stream.bytes(), 0);
  stream.Pack(0, 0, nullptr);
}

TEST(PieceStream, PartsOfAnAllgatherLieInRankOrder) {
  char input[] = "xy";
  char output[7] = "......";
  CollectiveSpec spec;
  spec.pieces.push_back(At(input, output, 2));
  spec.shares = {{{}, {1, 2, 0, 3}}};
  const auto parts = GatherParts(spec, 1, 4);
  EXPECT_EQ(parts[3].bytes(), 3);
  parts[1].Keep(0, 2);
  parts[3].Unpack(0, 3, reinterpret_cast<const std::byte*>("789"));
  EXPECT_EQ(std::string(output), ".xy789");
}

// Every node but the root has one parent, which counts it among its children.
TEST(Tree, ReachesEverybodyOnce) {
  for (int size = 1; size <= 40; ++size) {
    std::set<int> reached{0};
    for (int node = 0; node < size; ++node) {
      for (const int child : Tree(node, size).Children()) {
        EXPECT_TRUE(child < size);
        EXPECT_EQ(Tree(child, size).parent(), node);
        EXPECT_TRUE(reached.insert(child).second);
      }
    }
    EXPECT_EQ(static_cast<int>(reached.size()), size);
  }
}

TEST(Ring, BringsEveryBlockFromThePredecessor) {
  for (int size = 2; size <= 9; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const int previous = (rank - 1 + size) % size;
      EXPECT_EQ(RingBlock(rank, 0, size), previous);
      std::set<int> blocks;
      for (int step = 0; step + 1 < size; ++step) {
        blocks.insert(RingBlock(rank, step, size));
        // What arrives in a step arrived at the predecessor the step before.
        EXPECT_EQ(RingBlock(rank, step + 1, size), RingBlock(previous, step, size));
      }
      EXPECT_EQ(static_cast<int>(blocks.size()), size - 1);
      EXPECT_EQ(blocks.count(rank), size_t{0});
    }
  }
}

// A rank may hear of its last round first. Behind that lies a frame of an earlier operation,
// without which nobody goes on.
TEST(Barrier, ARoundThatComesBeforeItsTurnIsInNobodysWay) {
  inproc::Fabric fabric(3);
  Waker wakers[3];
  std::unique_ptr<Transport> transports[3];
  for (int r = 0; r < 3; ++r) transports[r] = fabric.MakeTransport(0, GlobalRank(r), wakers[r]);
  const Communicator comm{transports[2].get(), 1, {0, 1, 2}, Position(2), nullptr, {}};
  const auto barrier = MakeDisseminationBarrier(comm, 9);
  EXPECT_TRUE(barrier->Advance() == Step::kProgressed);
  char sent = 'x';
  char received = 0;
  Transfer sending[3];
  Transfer receiving;
  transports[0]->Send(GlobalRank(2), {1, 9, 1}, nullptr, 0, &sending[0]);
  transports[0]->Send(GlobalRank(2), {1, 8, 0}, &sent, 1, &sending[1]);
  transports[2]->Recv(GlobalRank(0), {1, 8, 0}, &received, 1, &receiving);
  bool moved = false;
  ASSERT_OK(transports[0]->Progress(&moved));
  ASSERT_OK(transports[2]->Progress(&moved));
  EXPECT_TRUE(receiving.done);
  EXPECT_EQ(received, sent);
  transports[1]->Send(GlobalRank(2), {1, 9, 0}, nullptr, 0, &sending[2]);
  ASSERT_OK(transports[1]->Progress(&moved));
  Step step = Step::kBlocked;
  for (int turn = 0; turn < 8 && step != Step::kDone; ++turn) {
    ASSERT_OK(transports[2]->Progress(&moved));
    step = barrier->Advance();
  }
  EXPECT_TRUE(step == Step::kDone);
}

TEST(Scratch, ReusesWhatWasGivenBack) {
  const auto pool = ScratchPool::Make();
  std::byte* first = nullptr;
  {
    ScratchPool::Lease a;
    ScratchPool::Lease b;
    ASSERT_OK(pool->Borrow(100'000, &a));
    ASSERT_OK(pool->Borrow(100'000, &b));
    EXPECT_TRUE(a.data() != b.data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 4096, uintptr_t{0});
    std::memset(a.data(), 1, 100'000);
    std::memset(b.data(), 1, 100'000);
    first = a.data();
  }
  ScratchPool::Lease again;
  ScratchPool::Lease another;
  ASSERT_OK(pool->Borrow(90'000, &again));
  ASSERT_OK(pool->Borrow(90'000, &another));
  EXPECT_TRUE(again.data() == first || another.data() == first);
}

TEST(Scratch, ALeaseMayOutliveItsPool) {
  ScratchPool::Lease lease;
  {
    const auto pool = ScratchPool::Make();
    ASSERT_OK(pool->Borrow(10, &lease));
  }
  std::memset(lease.data(), 1, 10);
}

// A payload may lie in a slot for exactly as long as somebody may read it.
TEST(Board, InlineSlotsComeBackWhenEverybodyHasBegunTheNext) {
  inproc::Fabric fabric(2);
  Waker wakers[2];
  std::unique_ptr<Window> windows[2];
  std::unique_ptr<Board> boards[2];
  RunRanks(2, [&](int r) {
    windows[r] = fabric.MakeWindow(1, {0, 1}, GlobalRank(r), wakers[r]);
    ASSERT_OK(Board::Make(windows[r].get(), {}, &boards[r]));
  });
  Board& a = *boards[0];
  Board& b = *boards[1];
  ASSERT_TRUE(a.MayBeginInline(0));
  EXPECT_FALSE(a.MayBeginInline(1));  // not its turn
  a.BeginInline(0);
  EXPECT_TRUE(b.HasBegun(0, 0));
  EXPECT_FALSE(a.HasBegun(1, 0));
  EXPECT_FALSE(a.MayBegin(1));  // the slots of 0 are not read yet
  a.EndInline();
  ASSERT_TRUE(a.MayBeginInline(1));
  a.BeginInline(1);
  a.EndInline();
  EXPECT_FALSE(a.MayBeginInline(2));  // b may still read slot 0
  b.BeginInline(0);
  b.EndInline();
  EXPECT_FALSE(a.MayBeginInline(2));
  b.BeginInline(1);
  EXPECT_TRUE(a.MayBeginInline(2));
}

TEST(Board, StagingComesBackWhenEverybodyHasTaken) {
  const BoardShape shape = BoardShape::Of(20'000, 3);
  const uint64_t slots = 3;
  inproc::Fabric fabric(2);
  Waker wakers[2];
  std::unique_ptr<Window> windows[2];
  std::unique_ptr<Board> boards[2];
  RunRanks(2, [&](int r) {
    windows[r] = fabric.MakeWindow(1, {0, 1}, GlobalRank(r), wakers[r]);
    ASSERT_OK(Board::Make(windows[r].get(), shape, &boards[r]));
  });
  Board& a = *boards[0];
  Board& b = *boards[1];
  EXPECT_TRUE(a.MayStage(slots - 1));
  EXPECT_FALSE(a.MayStage(slots));
  a.Post(Phase::kTaken, 1);
  EXPECT_FALSE(a.MayStage(slots));
  b.Post(Phase::kTaken, 1);
  EXPECT_TRUE(a.MayStage(slots));
  EXPECT_FALSE(a.MayStage(slots + 1));
  EXPECT_TRUE(a.Staging(0, slots) == a.Staging(0, 0));
  EXPECT_TRUE(a.Staging(0, slots + 1) == a.Staging(0, 0) + shape.chunk_bytes);
}

}  // namespace
}  // namespace hvd::test
