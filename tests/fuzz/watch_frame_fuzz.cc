// Frames between watchers: a frame that was sealed with the key opens, its fields come back as they
// went, and no field has a value that this rank has no name for. Without the key nothing opens.

#include <cstring>

#include "runtime/liveness/frame.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;

constexpr Key kKey{4, 5, 6};
constexpr size_t kBody = kWatchFrameBytes - kSealBytes;

bool Same(const WatchNews& a, const WatchNews& b) {
  return a.kind == b.kind && a.generation == b.generation && a.pid == b.pid && a.home == b.home &&
         a.abandons == b.abandons && a.blocked.own == b.blocked.own &&
         a.blocked.below == b.blocked.below && a.blocked.all == b.blocked.all &&
         a.departures == b.departures && a.stopped == b.stopped && a.stacks == b.stacks &&
         a.cause.kind == b.cause.kind && a.cause.culprit == b.cause.culprit &&
         a.cause.other == b.cause.other && a.cause.link == b.cause.link &&
         a.cause.reason == b.cause.reason;
}

WatchNews Decoded(const std::string& frame) {
  WatchNews news;
  Opener opener(kKey);
  const Status status = DecodeWatch(frame, &opener, &news);
  REQUIRE_THAT(status.ok(), status.message());
  return news;
}

std::string Encoded(const WatchNews& news) {
  Sealer sealer(kKey);
  const WatchFrame frame = EncodeWatch(news, &sealer);
  return {frame.data(), frame.size()};
}

void CheckValue(Input* input) {
  WatchNews news;
  news.kind = static_cast<WatchKind>(1 + input->Below(4));
  news.generation = input->Number();
  news.pid = static_cast<int32_t>(input->Number());
  news.abandons = (input->Byte() & 1) != 0;
  news.home = input->Number();
  news.blocked = {input->Signed(), input->Signed(), input->Signed()};
  news.stacks = static_cast<uint32_t>(input->Number());
  news.cause.kind = static_cast<CauseKind>(1 + input->Below(kCauseKinds));
  news.cause.link = static_cast<LinkRole>(input->Below(4));
  news.cause.culprit = GlobalRank(static_cast<int32_t>(input->Number()));
  news.cause.other = GlobalRank(static_cast<int32_t>(input->Number()));
  const bool abort = news.kind == WatchKind::kAbort;
  std::string text(input->Text(255));
  text += std::string(input->Byte() & 1 ? 2000 : 0, 'r');
  if (abort) news.cause.reason = text;
  if (!abort) news.departures = text;
  const std::string frame = Encoded(news);
  REQUIRE(frame.size() == WatchFrameBytes(frame.data()));
  const WatchNews got = Decoded(frame);
  const std::string& came = abort ? got.cause.reason.str() : got.departures;
  REQUIRE(text.compare(0, came.size(), came) == 0);
  if (abort) news.cause.reason = came;
  if (!abort) news.departures = came;
  REQUIRE(Same(news, got));
}

// A body of any bytes. One that was sealed with the key is checked field by field.
void CheckBytes(std::string_view bytes, bool sealed) {
  std::string frame(bytes.substr(0, kBody));
  frame.resize(kBody);
  Sealer sealer(kKey);
  sealer.Seal(&frame);
  if (!sealed) frame[bytes.size() % kWatchFrameBytes] ^= 1;
  Opener opener(kKey);
  WatchNews news;
  const Status status = DecodeWatch(frame, &opener, &news);
  if (!status.ok()) {
    REQUIRE(status.code() == Code::kAborted && !status.message().empty());
    return;
  }
  REQUIRE(sealed);
  REQUIRE(news.kind >= WatchKind::kHeartbeat && news.kind <= WatchKind::kShowStacks);
  REQUIRE(news.cause.kind >= CauseKind::kDied &&
          static_cast<uint8_t>(news.cause.kind) <= kCauseKinds);
  REQUIRE(news.cause.link <= LinkRole::kShare);
  REQUIRE(Same(news, Decoded(Encoded(news))));
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Input input(data, size);
  const uint8_t what = input.Byte();
  if ((what & 3) == 0) {
    hvd::CheckValue(&input);
  } else {
    hvd::CheckBytes(input.Rest(), (what & 3) != 1);
  }
  return 0;
}
