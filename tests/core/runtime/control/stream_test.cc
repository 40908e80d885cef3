#include <random>

#include "check.h"
#include "runtime/control/stream.h"
#include "runtime/liveness/frame.h"
#include "runtime/operation/queue.h"

namespace hvd {
namespace {

// Messages of all sizes, larger than the ring too, come out as they went in whatever the interleaving.
TEST(ByteRing, KeepsMessagesWhole) {
  constexpr size_t kCapacity = 4096;
  std::vector<std::byte> memory(kCapacity);
  RingWriter writer;
  RingReader reader;
  writer.Attach(memory.data(), kCapacity);
  reader.Attach(memory.data(), kCapacity);
  std::mt19937 random(7);
  std::vector<std::string> sent;
  size_t received = 0;
  while (received < 500) {
    if (sent.size() < 500 && random() % 2 == 0) {
      sent.emplace_back(random() % (random() % 10 == 0 ? 20000 : 300), static_cast<char>(random()));
      writer.Append(sent.back());
    }
    writer.Write(reader.head());
    if (random() % 3 != 0) EXPECT_TRUE(reader.Read(writer.tail()));
    std::string message;
    while (reader.Next(&message) == MessageAssembler::Next::kMessage) {
      ASSERT_TRUE(received < sent.size());
      EXPECT_TRUE(message == sent[received++]);
    }
  }
}

TEST(ByteRing, RefusesAnImpossibleTailAndLength) {
  std::vector<std::byte> memory(64, std::byte{0xff});
  RingReader reader;
  reader.Attach(memory.data(), memory.size());
  EXPECT_FALSE(reader.Read(65));
  EXPECT_TRUE(reader.Read(8));
  std::string message;
  EXPECT_TRUE(reader.Next(&message) == MessageAssembler::Next::kCorrupt);
}

TEST(WatchFrame, HeartbeatsTellOfOthers) {
  const Key key{1, 2, 3};
  Sealer sealer(key);
  Opener opener(key);
  WatchNews news;
  news.blocked = {3, 2, 1};
  news.departures = std::string("\0\x01\0", 3);
  news.stacks = 9;
  WatchNews heard;
  const WatchFrame frame = EncodeWatch(news, &sealer);
  ASSERT_OK(DecodeWatch({frame.data(), frame.size()}, &opener, &heard));
  EXPECT_TRUE(heard.blocked.own == 3 && heard.blocked.below == 2 && heard.blocked.all == 1);
  EXPECT_EQ(heard.departures, news.departures);
  EXPECT_EQ(heard.stacks, 9u);
  EXPECT_TRUE(heard.cause.reason.empty());
}

TEST(WatchFrame, RoundTripsAndRefusesForgery) {
  const Key key{1, 2, 3};
  Sealer sealer(key);
  WatchNews news;
  news.kind = WatchKind::kAbort;
  news.generation = 5;
  news.pid = 4711;
  news.home = 1ull << 63;
  news.cause.kind = CauseKind::kLink;
  news.cause.culprit = GlobalRank(3);
  news.cause.other = GlobalRank(5);
  news.cause.link = LinkRole::kData;
  news.cause.reason = std::string(3000, 'x');  // longer than a frame: cut
  const WatchFrame encoded = EncodeWatch(news, &sealer);
  const std::string frame(encoded.data(), encoded.size());
  EXPECT_EQ(frame.size(), kWatchFrameBytes);
  WatchNews heard;
  Opener opener(key);
  ASSERT_OK(DecodeWatch(frame, &opener, &heard));
  EXPECT_TRUE(heard.kind == news.kind && heard.generation == 5 && heard.pid == 4711);
  EXPECT_EQ(heard.home, news.home);
  EXPECT_TRUE(heard.cause.kind == CauseKind::kLink && heard.cause.culprit == GlobalRank(3) &&
              heard.cause.other == GlobalRank(5));
  EXPECT_TRUE(heard.cause.link == LinkRole::kData);
  const std::string& reason = heard.cause.reason.str();
  EXPECT_TRUE(reason.size() > 1000 && reason == news.cause.reason.str().substr(0, reason.size()));
  EXPECT_FALSE(DecodeWatch(frame, &opener, &heard).ok());  // replayed
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string forged = frame;
    forged[random() % forged.size()] ^= static_cast<char>(1 << random() % 8);
    Opener fresh(key);
    EXPECT_FALSE(DecodeWatch(forged, &fresh, &heard).ok());
  }
}

TEST(Queue, NamesAreFreeAgainOnceForgotten) {
  Queue queue;
  const auto make = [](const std::string& name) {
    Entry entry;
    entry.request.name = name;
    return std::make_shared<Handle>(std::move(entry));
  };
  const HandlePtr first = make("a");
  ASSERT_OK(queue.Push(first));
  EXPECT_TRUE(queue.Push(make("a")).code() == Code::kDuplicate);
  const HandlePtr unnamed = make("");
  ASSERT_OK(queue.Push(unnamed));
  EXPECT_EQ(unnamed->name(), "allreduce.noname.1");
  EXPECT_TRUE(queue.Find(0, "a") == first);
  EXPECT_TRUE(queue.Find(1, "a") == nullptr);
  EXPECT_EQ(queue.in_flight(), 2u);
  EXPECT_EQ(queue.InFlight().size(), 2u);
  queue.Forget(first.get());
  ASSERT_OK(queue.Push(make("a")));
}

}  // namespace
}  // namespace hvd
