#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/link.h"
#include "base/status.h"
#include "runtime/liveness/blocked.h"
#include "runtime/liveness/cause.h"

namespace hvd {

enum class WatchKind : uint8_t { kHeartbeat = 1, kGoodbye, kAbort, kShowStacks };

// What watchers tell each other.
struct WatchNews {
  WatchKind kind = WatchKind::kHeartbeat;
  uint64_t generation = 0;
  int32_t pid = 0;
  uint64_t home = 0;      // where the pid means something: see HostIdentity
  bool abandons = false;  // kGoodbye: with operations in flight
  BlockedNews blocked;    // kHeartbeat
  std::string
      departures;        // kHeartbeat, kGoodbye: see Departures; what does not fit is not passed on
  std::string stopped;   // kHeartbeat: see StoppedRanks; likewise
  uint32_t stacks = 0;   // kShowStacks: how often it was asked for
  Cause cause;           // kAbort; the reason is cut to fit
  bool is_wide = false;  // goes in a frame of the greatest size, whatever it says
};

// Two sizes, which the first bytes tell apart, so that a stream can never be out of step. Signs of
// life are short: they get through where a network loses large packets.
constexpr size_t kWatchFrameBytes = 2048;  // a whole stall report
constexpr size_t kShortWatchFrameBytes = 512;

class WatchFrame {
 public:
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }
  size_t size() const { return size_; }
  void set_size(size_t size) { size_ = size; }

 private:
  std::array<char, kWatchFrameBytes> bytes_;
  size_t size_ = kWatchFrameBytes;
};

// Of the frame that begins with these kShortWatchFrameBytes.
size_t WatchFrameBytes(const char* begin);

// Without memory: that there is none left must be told, too.
WatchFrame EncodeWatch(const WatchNews& news, Sealer* sealer) noexcept;
Status DecodeWatch(std::string_view frame, Opener* opener, WatchNews* news);

}  // namespace hvd
