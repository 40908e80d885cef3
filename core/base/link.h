#pragma once

#include <array>
#include <cstdint>

#include "base/rank.h"

namespace hvd {

using Key = std::array<uint8_t, 32>;

// What a connection is for; every role has a socket of its own, so that a stream that is held back
// (data whose receive is not posted yet) never holds back another.
// kShare (AF_UNIX, ranks of one host) passes the descriptors of shared memory.
enum class LinkRole : uint8_t { kWatch = 0, kControl, kData, kShare };

inline const char* Name(LinkRole role) {
  constexpr const char* kNames[] = {"watch", "control", "data", "share"};
  return kNames[static_cast<int>(role)];
}

// An authenticated, connected stream socket handed over by bootstrap. The core never resolves,
// listens or authenticates; it seals with the keys. Whoever takes the link owns `fd`.
struct Link {
  int fd = -1;
  GlobalRank peer;
  LinkRole role = LinkRole::kWatch;
  Key send_key{};
  Key recv_key{};
};

}  // namespace hvd
