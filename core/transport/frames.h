#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "base/rank.h"
#include "transport/transport.h"

namespace hvd {

// Small frames that go one way between two ranks, in memory that is kept here. They are numbered
// from 1 on, which is the sequence of their tags; one set and chunk names all of them. Neither end
// may move once it is used.
class FramesOut {
 public:
  FramesOut(Transport* transport, GlobalRank peer, uint32_t set, uint32_t chunk)
      : transport_(transport), peer_(peer), tag_{set, 0, chunk} {}

  // The two together are a frame.
  void Send(const void* head, size_t head_bytes, const void* rest, size_t rest_bytes) {
    Frame& frame = under_way_.emplace_back();
    const auto* const begin = static_cast<const std::byte*>(head);
    const auto* const behind = static_cast<const std::byte*>(rest);
    frame.bytes.reserve(head_bytes + rest_bytes);
    frame.bytes.assign(begin, begin + head_bytes);
    frame.bytes.insert(frame.bytes.end(), behind, behind + rest_bytes);
    ++tag_.sequence;
    transport_->Send(peer_, tag_, frame.bytes.data(), frame.bytes.size(), &frame.transfer);
  }

  // Lets go of what has been sent: so many frames.
  size_t Reap() {
    const size_t before = under_way_.size();
    while (!under_way_.empty() && under_way_.front().transfer.done) under_way_.pop_front();
    return before - under_way_.size();
  }

  // Nothing is left to be sent.
  bool idle() const {
    return std::all_of(under_way_.begin(), under_way_.end(),
                       [](const Frame& frame) { return frame.transfer.done; });
  }

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    Transfer transfer;
  };

  Transport* const transport_;
  const GlobalRank peer_;
  FrameTag tag_;                 // of the latest
  std::deque<Frame> under_way_;  // a deque does not move its elements
};

class FramesIn {
 public:
  // Of so many bytes at most.
  FramesIn(Transport* transport, GlobalRank peer, uint32_t set, uint32_t chunk, size_t most)
      : transport_(transport), peer_(peer), tag_{set, 0, chunk}, most_(most) {}

  // Posts the receive of the next frame, if the one before has been taken.
  void Listen() {
    if (listens_) return;
    listens_ = true;
    arrival_ = {};
    buffer_.resize(most_);
    ++tag_.sequence;
    transport_->Recv(peer_, tag_, buffer_.data(), most_, &arrival_);
  }

  // A frame lies in data().
  bool arrived() const { return listens_ && arrival_.done; }
  const std::byte* data() const { return buffer_.data(); }
  size_t bytes() const { return arrival_.bytes; }
  // It stays there until the next Listen. False: there is none.
  bool Take() {
    const bool taken = arrived();
    listens_ = listens_ && !taken;
    return taken;
  }

 private:
  Transport* const transport_;
  const GlobalRank peer_;
  FrameTag tag_;  // of the latest
  const size_t most_;
  bool listens_ = false;  // for a frame that has not been taken
  Transfer arrival_;
  std::vector<std::byte> buffer_;  // none before it is wanted
};

}  // namespace hvd
