#include "runtime/peer/ring.h"

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "check.h"

namespace hvd::peer {
namespace {

constexpr size_t kRing = 4096;

// Both ends of a ring, without a window: nobody sleeps.
class QuietWindow : public Window {
 public:
  Position position() const override { return Position(0); }
  int size() const override { return 2; }
  Status Allocate(size_t, SegmentId*) override { return Status::Ok(); }
  std::byte* Span(Position, SegmentId) override { return nullptr; }
  void Post(Flag& flag, uint64_t value, Position) override { flag.store(value); }
  void Arm(bool) override {}
};

struct Pair {
  std::vector<std::byte> bytes = std::vector<std::byte>(kRing);
  Flag written{0};
  Flag consumed{0};
  QuietWindow window;
  RingOut out{bytes.data(), kRing, &written, &consumed};
  RingIn in{bytes.data(), kRing, &written, &consumed};

  bool Put(const Frame& frame, const std::byte* inlined) {
    const bool put = out.Put(frame, inlined);
    out.Publish(&window, Position(1));
    return put;
  }
};

Frame Whole(uint64_t number, size_t bytes) {
  Frame frame;
  frame.kind = FrameKind::kWhole;
  frame.number = number;
  frame.bytes = bytes;
  frame.inlined = static_cast<uint32_t>(bytes);
  return frame;
}

TEST(Ring, KeepsEveryRecordInOrderWhereverItBegins) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Pair pair;
    std::deque<std::vector<std::byte>> expected;
    uint64_t number = 0;
    uint64_t seen = 0;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        std::vector<std::byte> data(random() % (MostInlined(kRing) + 1));
        for (std::byte& byte : data) byte = static_cast<std::byte>(random());
        if (!pair.Put(Whole(number + 1, data.size()), data.data())) {
          EXPECT_FALSE(expected.empty());  // an empty ring takes anything
          continue;
        }
        ++number;
        expected.push_back(std::move(data));
        continue;
      }
      Frame frame;
      const std::byte* inlined;
      const bool got = pair.in.Next(&frame, &inlined);
      ASSERT_EQ(got, !expected.empty());
      if (!got) continue;
      EXPECT_EQ(frame.number, ++seen);
      ASSERT_EQ(static_cast<size_t>(frame.inlined), expected.front().size());
      const bool equal =
          frame.inlined == 0 || std::memcmp(inlined, expected.front().data(), frame.inlined) == 0;
      EXPECT_TRUE(equal);
      expected.pop_front();
      pair.in.Release();
      pair.in.Publish(&pair.window, Position(0));
    }
    EXPECT_FALSE(pair.out.broken());
    EXPECT_TRUE(pair.in.broken().empty());
  }
}

TEST(Ring, SaysWhatNoWriterAndNoReaderCanHaveWritten) {
  Frame frame;
  const std::byte* inlined;
  {
    Pair pair;
    pair.written.store(kRing + 64);  // more than it holds
    EXPECT_FALSE(pair.in.Next(&frame, &inlined));
    EXPECT_FALSE(pair.in.broken().empty());
  }
  {
    Pair pair;
    EXPECT_TRUE(pair.Put(Whole(1, 100), std::vector<std::byte>(100).data()));
    pair.bytes[0] = std::byte{77};  // no kind of frame
    EXPECT_FALSE(pair.in.Next(&frame, &inlined));
    EXPECT_FALSE(pair.in.broken().empty());
  }
  {
    Pair pair;
    EXPECT_TRUE(pair.Put(Whole(1, 100), std::vector<std::byte>(100).data()));
    const FrameHead head = Encode(Whole(1, 3000));  // longer than what was written
    std::memcpy(pair.bytes.data(), head.data(), head.size());
    EXPECT_FALSE(pair.in.Next(&frame, &inlined));
    EXPECT_FALSE(pair.in.broken().empty());
  }
  {
    Pair pair;
    pair.consumed.store(1 << 20);
    const std::vector<std::byte> data(MostInlined(kRing));
    EXPECT_TRUE(pair.Put(Whole(1, data.size()), data.data()));
    EXPECT_TRUE(pair.Put(Whole(2, data.size()), data.data()));
    EXPECT_FALSE(pair.Put(Whole(3, data.size()), data.data()));
    EXPECT_TRUE(pair.out.broken());
  }
}

TEST(Frames, ComeBackAsTheyWere) {
  Frame frame = Whole(7, 12);
  frame.set = 0x12345678;
  frame.tag = -5;
  frame.matched = uint64_t{1} << 63;
  frame.freed = 99;
  Frame back;
  ASSERT_OK(Decode(Encode(frame).data(), &back));
  EXPECT_EQ(back.kind, frame.kind);
  EXPECT_EQ(back.set, frame.set);
  EXPECT_EQ(back.tag, frame.tag);
  EXPECT_EQ(back.number, frame.number);
  EXPECT_EQ(back.bytes, frame.bytes);
  EXPECT_EQ(back.inlined, frame.inlined);
  EXPECT_EQ(back.matched, frame.matched);
  EXPECT_EQ(back.freed, frame.freed);
}

}  // namespace
}  // namespace hvd::peer
