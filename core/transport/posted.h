#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "transport/transport.h"

namespace hvd {

struct PostedSend {
  FrameTag tag;
  const std::byte* data;
  size_t bytes;
  Transfer* transfer;
};

struct PostedRecv {
  FrameTag tag;
  std::byte* data;
  size_t capacity;
  Transfer* transfer;
};

// The receives posted for one peer. Frames mostly arrive in the order of posting, so a scan from the
// front ends at once.
class PostedRecvs {
 public:
  bool empty() const { return posted_.empty(); }
  void Add(const PostedRecv& recv) { posted_.push_back(recv); }
  void Clear() { posted_.clear(); }

  // Removes the receive that waits for `tag`; false when there is none.
  bool Take(const FrameTag& tag, PostedRecv* out) {
    const auto match =
        std::find_if(posted_.begin(), posted_.end(), [&](const auto& r) { return r.tag == tag; });
    if (match == posted_.end()) return false;
    *out = *match;
    posted_.erase(match);
    return true;
  }

 private:
  std::deque<PostedRecv> posted_;
};

}  // namespace hvd
