#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "digest/sha256.h"

namespace hvd {

using Key = std::array<uint8_t, 32>;

// What a connection is for; every role has a socket of its own, so that a stream that is held back
// (data whose receive is not posted yet) never holds back another.
// kShare (AF_UNIX, ranks of one host) passes the descriptors of shared memory; kLauncher leads to
// no rank. 5 is the launcher's own. From kMoreData on there are further sockets for data: see
// tcp::TcpTransport::Options::strands.
enum class LinkRole : uint8_t { kWatch = 0, kControl, kData, kShare, kLauncher, kMoreData = 6 };

constexpr int kMostStrands = 4;
// Of the sockets for data by number, from 0, and the number by role.
constexpr LinkRole DataRole(int strand) {
  const int more = static_cast<int>(LinkRole::kMoreData) + strand - 1;
  return strand == 0 ? LinkRole::kData : static_cast<LinkRole>(more);
}
constexpr int StrandOf(LinkRole role) {
  const int more = static_cast<int>(role) - static_cast<int>(LinkRole::kMoreData);
  return more < 0 ? 0 : more + 1;
}

inline const char* Name(LinkRole role) {
  constexpr const char* kNames[] = {"watch", "control", "data", "share", "launcher"};
  return kNames[static_cast<int>(StrandOf(role) > 0 ? LinkRole::kData : role)];
}

// An authenticated, connected stream socket handed over by bootstrap. The core never resolves,
// listens or authenticates; it seals with the keys. Whoever takes the link owns `fd`.
struct Link {
  int fd = -1;
  GlobalRank peer;
  LinkRole role = LinkRole::kWatch;
  Key send_key{};
  Key recv_key{};
  uint64_t sealed = 0;  // kLauncher: the frames that went over it before
};

// Those of one role, which are the caller's from here on.
std::vector<Link> Take(LinkRole role, std::vector<Link>* links);

// A sealed frame is the frame and a truncated MAC over (number of the frame on this link, frame).
// The number is not sent: both sides count, so a frame that is forged, repeated, lost or out of
// order does not open.
constexpr size_t kSealBytes = 16;

class Sealer {
 public:
  explicit Sealer(const Key& key) : hmac_(key.data(), key.size()) {}

  void Seal(std::string* frame);                          // appends the MAC
  void Seal(const void* frame, size_t bytes, void* mac);  // writes the MAC of kSealBytes

 private:
  HmacSha256 hmac_;
  uint64_t number_ = 0;
};

// A link whose frame did not open is lost: after an error every later frame fails too.
class Opener {
 public:
  explicit Opener(const Key& key) : hmac_(key.data(), key.size()) {}

  Status Open(std::string_view sealed, std::string_view* frame);  // *frame = `sealed` less its MAC
  Status Open(const void* frame, size_t bytes, const void* mac);

 private:
  HmacSha256 hmac_;
  uint64_t number_ = 0;
  bool lost_ = false;
};

}  // namespace hvd
