#include "runtime/liveness/frame.h"

#include <random>
#include <string>

#include "check.h"

namespace hvd::test {
namespace {

TEST(WatchFrame, HeartbeatsTellOfOthers) {
  const Key key{1, 2, 3};
  Sealer sealer(key);
  Opener opener(key);
  WatchNews news;
  news.blocked = {3, 2, 1};
  news.departures = std::string("\0\x01\0", 3);
  news.stopped = std::string("\3\0\0\0\1\0\0\0", 8);
  news.stacks = 9;
  WatchNews heard;
  const WatchFrame frame = EncodeWatch(news, &sealer);
  // Gets through where large packets are lost.
  EXPECT_EQ(frame.size(), kShortWatchFrameBytes);
  EXPECT_EQ(WatchFrameBytes(frame.data()), frame.size());
  ASSERT_OK(DecodeWatch({frame.data(), frame.size()}, &opener, &heard));
  EXPECT_TRUE(heard.blocked.own == 3 && heard.blocked.below == 2 && heard.blocked.all == 1);
  EXPECT_EQ(heard.departures, news.departures);
  EXPECT_EQ(heard.stopped, news.stopped);
  EXPECT_EQ(heard.stacks, 9u);
  EXPECT_TRUE(heard.cause.reason.empty());
}

TEST(WatchFrame, IsAsLongAsItHasToBeOrIsAskedToBe) {
  Sealer sealer(Key{});
  Opener opener(Key{});
  WatchNews news;
  WatchNews heard;
  for (const size_t bytes : {size_t{0}, size_t{400}, size_t{500}, size_t{1900}}) {
    for (const bool wide : {false, true}) {
      news.departures = std::string(bytes, 'x');
      news.is_wide = wide;
      const WatchFrame frame = EncodeWatch(news, &sealer);
      const bool is_short = !wide && bytes < 450;
      EXPECT_EQ(frame.size(), is_short ? kShortWatchFrameBytes : kWatchFrameBytes);
      EXPECT_EQ(WatchFrameBytes(frame.data()), frame.size());
      ASSERT_OK(DecodeWatch({frame.data(), frame.size()}, &opener, &heard));
      EXPECT_EQ(heard.departures, news.departures);
    }
  }
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

}  // namespace
}  // namespace hvd::test
