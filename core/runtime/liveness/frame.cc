#include "runtime/liveness/frame.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace hvd {

namespace {

constexpr uint32_t kMagic = 0x36575648;       // "HVW6", the last digit is the version
constexpr uint32_t kShortMagic = 0x36535648;  // "HVS6"

struct Layout {
  uint32_t magic;
  uint8_t kind;
  uint8_t abandons;
  uint8_t cause;
  uint8_t link;
  uint64_t generation;
  uint64_t home;
  BlockedNews blocked;
  int32_t pid;
  int32_t culprit;
  int32_t other;
  uint32_t stacks;
  uint32_t text_bytes;     // of an abort's reason, or else of the departures
  uint32_t stopped_bytes;  // behind it
  char text[kWatchFrameBytes - kSealBytes - 72];
};
constexpr size_t kSealed = kWatchFrameBytes - kSealBytes;
constexpr size_t kShortSealed = kShortWatchFrameBytes - kSealBytes;
constexpr size_t kHead = offsetof(Layout, text);
static_assert(sizeof(Layout) == kSealed, "a frame is the layout and its seal");

}  // namespace

WatchFrame EncodeWatch(const WatchNews& news, Sealer* sealer) noexcept {
  Layout layout{};
  layout.kind = static_cast<uint8_t>(news.kind);
  layout.abandons = news.abandons ? 1 : 0;
  layout.generation = news.generation;
  layout.home = news.home;
  layout.blocked = news.blocked;
  layout.pid = news.pid;
  layout.cause = static_cast<uint8_t>(news.cause.kind);
  layout.link = static_cast<uint8_t>(news.cause.link);
  layout.culprit = news.cause.culprit.value();
  layout.other = news.cause.other.value();
  layout.stacks = news.stacks;
  const std::string& text =
      news.kind == WatchKind::kAbort ? news.cause.reason.str() : news.departures;
  layout.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof layout.text));
  std::memcpy(layout.text, text.data(), layout.text_bytes);
  const size_t room = sizeof layout.text - layout.text_bytes;
  layout.stopped_bytes =
      static_cast<uint32_t>(news.stopped.size() <= room ? news.stopped.size() : 0);
  std::memcpy(layout.text + layout.text_bytes, news.stopped.data(), layout.stopped_bytes);
  const bool is_short =
      !news.is_wide && kHead + layout.text_bytes + layout.stopped_bytes <= kShortSealed;
  layout.magic = is_short ? kShortMagic : kMagic;
  const size_t sealed = is_short ? kShortSealed : kSealed;
  WatchFrame frame;
  std::memcpy(frame.data(), &layout, sealed);
  sealer->Seal(frame.data(), sealed, frame.data() + sealed);
  frame.set_size(sealed + kSealBytes);
  return frame;
}

size_t WatchFrameBytes(const char* begin) {
  uint32_t magic;
  std::memcpy(&magic, begin, sizeof magic);
  return magic == kMagic ? kWatchFrameBytes : kShortWatchFrameBytes;
}

Status DecodeWatch(std::string_view frame, Opener* opener, WatchNews* news) {
  std::string_view body;
  HVD_RETURN_IF_ERROR(opener->Open(frame, &body));
  Layout layout{};
  if (body.size() != kSealed && body.size() != kShortSealed)
    return Status::Aborted("a watch frame has the wrong length");
  std::memcpy(&layout, body.data(), body.size());
  const size_t room = body.size() - kHead;
  if (layout.magic != (body.size() == kSealed ? kMagic : kShortMagic) || layout.kind < 1 ||
      layout.kind > static_cast<uint8_t>(WatchKind::kShowStacks) || layout.text_bytes > room ||
      layout.stopped_bytes > room - layout.text_bytes || layout.cause < 1 ||
      layout.cause > kCauseKinds || layout.link > static_cast<uint8_t>(LinkRole::kShare)) {
    return Status::Aborted("a watch frame has a wrong header");
  }
  news->kind = static_cast<WatchKind>(layout.kind);
  news->abandons = layout.abandons != 0;
  news->generation = layout.generation;
  news->home = layout.home;
  news->blocked = layout.blocked;
  news->pid = layout.pid;
  news->cause.kind = static_cast<CauseKind>(layout.cause);
  news->cause.link = static_cast<LinkRole>(layout.link);
  news->cause.culprit = GlobalRank(layout.culprit);
  news->cause.other = GlobalRank(layout.other);
  news->stacks = layout.stacks;
  std::string text(layout.text, layout.text_bytes);
  if (news->kind == WatchKind::kAbort) {
    news->cause.reason = std::move(text);
  } else {
    news->departures = std::move(text);
  }
  news->stopped.assign(layout.text + layout.text_bytes, layout.stopped_bytes);
  return Status::Ok();
}

}  // namespace hvd
