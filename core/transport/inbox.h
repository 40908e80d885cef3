#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "transport/id_ranges.h"
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

inline Status CheckFits(size_t bytes, const PostedRecv& recv) {
  if (bytes <= recv.capacity) return Status::Ok();
  return Status::Aborted("a frame of " + std::to_string(bytes) + " bytes where at most " +
                         std::to_string(recv.capacity) + " are expected");
}

// What is expected of one peer, and what came before it was.
//
// A frame that nothing is posted for stays in the socket, which is flow control for free, unless
// another set waits for something behind it: then it is parked here. Otherwise sets that share
// links could wait for each other in a circle. Sets keep their own order, so nothing behind a frame
// of a set can be missing to that set. All members have submitted an operation before any of its
// frames is sent, so what is parked is never more than the operations that this rank has in flight.
// That is for the peer to keep to; what goes beyond any use is refused.
class Inbox {
 public:
  struct Limits {
    size_t parked_frames = 1 << 16;
    size_t parked_bytes = size_t{4} << 30;
  };

  Inbox() : Inbox(Limits()) {}
  // `forgotten`: sets that are no more already.
  explicit Inbox(const Limits& limits, IdRanges forgotten = {})
      : limits_(limits), forgotten_(std::move(forgotten)) {}

  bool waiting() const { return !posted_.empty(); }

  Status Post(const PostedRecv& recv) {
    const auto early = std::find_if(parked_.begin(), parked_.end(),
                                    [&](const Parcel& parcel) { return parcel.tag == recv.tag; });
    if (early == parked_.end()) {
      posted_.push_back(recv);
      return Status::Ok();
    }
    const Status status = Deliver(early->payload, recv);
    parked_bytes_ -= early->payload.size();
    parked_.erase(early);
    return status;
  }

  // Removes the receive that waits for `tag`; false when there is none. Frames mostly arrive in the
  // order of posting, so a scan from the front ends at once.
  bool Take(const FrameTag& tag, PostedRecv* out) {
    const auto match =
        std::find_if(posted_.begin(), posted_.end(), [&](const auto& r) { return r.tag == tag; });
    if (match == posted_.end()) return false;
    *out = *match;
    posted_.erase(match);
    return true;
  }

  // Whether a frame that nothing is posted for must make way for what comes behind it.
  bool MustMakeWay(const FrameTag& tag) const {
    return std::any_of(posted_.begin(), posted_.end(),
                       [&](const PostedRecv& recv) { return recv.tag.set != tag.set; });
  }

  // A frame that made way; its receive may have been posted since.
  Status Park(const FrameTag& tag, std::vector<std::byte> payload) {
    PostedRecv recv;
    if (Forgotten(tag)) return Status::Ok();
    if (Take(tag, &recv)) return Deliver(payload, recv);
    HVD_RETURN_IF_ERROR(CheckRoom(tag, payload.size()));
    parked_bytes_ += payload.size();
    parked_.push_back({tag, std::move(payload)});
    return Status::Ok();
  }

  // Drops what concerns a set, and says from then on that its frames are to be discarded. Ids are
  // given in order and never again. Of sets that all ranks make it is told too where this rank is
  // no member, so what is forgotten of them falls into at most one range more than there are; of
  // those that their members make alone, into one more for each that others have made in between.
  void Forget(uint32_t set) {
    const auto of_set = [set](const auto& item) { return item.tag.set == set; };
    posted_.erase(std::remove_if(posted_.begin(), posted_.end(), of_set), posted_.end());
    for (const Parcel& parcel : parked_)
      parked_bytes_ -= of_set(parcel) ? parcel.payload.size() : 0;
    parked_.erase(std::remove_if(parked_.begin(), parked_.end(), of_set), parked_.end());
    forgotten_.Add(set);
  }
  bool Forgotten(const FrameTag& tag) const { return forgotten_.Has(tag.set); }
  size_t forgotten_ranges() const { return forgotten_.ranges(); }

 private:
  struct Parcel {
    FrameTag tag;
    std::vector<std::byte> payload;
  };

  Status CheckRoom(const FrameTag& tag, size_t bytes) const {
    if (parked_.size() < limits_.parked_frames && bytes <= limits_.parked_bytes - parked_bytes_)
      return Status::Ok();
    return Status::Aborted(
        "it has sent " + std::to_string(parked_.size() + 1) + " frames with " +
        std::to_string(parked_bytes_ + bytes) +
        " bytes that nothing here waits for, the last one for process set " +
        std::to_string(tag.set) + ", where " + std::to_string(limits_.parked_frames) +
        " frames and " + std::to_string(limits_.parked_bytes) +
        " bytes are allowed. Check that all ranks run the same version of horovod; if they "
        "do, let fewer operations be in flight at once.");
  }

  static Status Deliver(const std::vector<std::byte>& payload, const PostedRecv& recv) {
    HVD_RETURN_IF_ERROR(CheckFits(payload.size(), recv));
    if (!payload.empty()) std::memcpy(recv.data, payload.data(), payload.size());
    recv.transfer->bytes = payload.size();
    recv.transfer->done = true;
    return Status::Ok();
  }

  const Limits limits_;
  std::deque<PostedRecv> posted_;
  std::deque<Parcel> parked_;
  size_t parked_bytes_ = 0;  // at most limits_.parked_bytes
  IdRanges forgotten_;
};

}  // namespace hvd
