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

}  // namespace
}  // namespace hvd::test
