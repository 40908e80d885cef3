#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

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

  // Drops the receives of a set, and says from then on that its frames are to be discarded.
  void Forget(uint32_t set) {
    const auto of_set = [set](const PostedRecv& recv) { return recv.tag.set == set; };
    posted_.erase(std::remove_if(posted_.begin(), posted_.end(), of_set), posted_.end());
    forgotten_.push_back(set);
  }
  bool Forgotten(const FrameTag& tag) const {
    return std::find(forgotten_.begin(), forgotten_.end(), tag.set) != forgotten_.end();
  }

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
  std::vector<uint32_t> forgotten_;
};

}  // namespace hvd
