#include "sim/links.h"

#include <algorithm>
#include <cstring>

namespace hvd::sim {

void Links::Send(int from, int to, const FrameTag& tag, const void* data, size_t bytes) {
  Traffic& sent = sent_[static_cast<size_t>(from)];
  ++sent.frames;
  sent.bytes += bytes;
  peers_[static_cast<size_t>(from)].insert(to);
  peers_[static_cast<size_t>(to)].insert(from);
  world_->Spend(from, network_.overhead);
  Nanos takes =
      network_.latency + static_cast<Nanos>(static_cast<double>(bytes) / network_.bytes_per_nano);
  if (network_.jitter > 0)
    takes += static_cast<Nanos>(world_->random().Below(static_cast<uint64_t>(network_.jitter)));
  if (network_.lost_one_in > 0 && world_->random().OneIn(network_.lost_one_in)) {
    takes += network_.retransmission;
  }
  std::deque<Frame>& frames = under_way_[to][from];
  Nanos arrives = world_->FreeAt(from) + takes;
  if (!frames.empty()) arrives = std::max(arrives, frames.back().arrives);
  frames.push_back({arrives, tag, std::string(static_cast<const char*>(data), bytes)});
  world_->Wake(to, arrives);
}

int Links::PeersOf(int rank) const {
  return static_cast<int>(peers_[static_cast<size_t>(rank)].size());
}

void SimTransport::Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
                        Transfer* transfer) {
  if (bytes > kMaxFrame) Violate("a frame is longer than a frame may be");
  links_->Send(rank_, peer.value(), tag, data, bytes);
  sending_.push_back(transfer);
}

void SimTransport::Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
                        Transfer* transfer) {
  const bool fresh =
      posted_.emplace(KeyOf(peer.value(), tag), Posted{data, capacity, transfer}).second;
  if (!fresh) Violate("two receives are posted for one frame");
}

void SimTransport::Forget(uint32_t set) {
  for (auto posted = posted_.begin(); posted != posted_.end();) {
    posted = std::get<1>(posted->first) == set ? posted_.erase(posted) : std::next(posted);
  }
}

Status SimTransport::Progress(bool* moved) {
  for (Transfer* transfer : sending_) transfer->done = true;
  *moved |= !sending_.empty();
  sending_.clear();
  for (auto& [peer, frames] : links_->ArrivedAt(rank_)) *moved |= Receive(peer, &frames);
  return Status::Ok();
}

bool SimTransport::Receive(int peer, std::deque<Frame>* frames) {
  std::vector<uint32_t> held;  // sets whose first frame nobody has asked for
  bool moved = false;
  for (auto frame = frames->begin(); frame != frames->end();) {
    if (frame->arrives > links_->world().now()) break;
    const bool behind = std::find(held.begin(), held.end(), frame->tag.set) != held.end();
    if (behind || !Match(peer, *frame)) {
      if (!behind) held.push_back(frame->tag.set);
      ++frame;
      continue;
    }
    links_->world().Spend(rank_, links_->network().overhead);
    frame = frames->erase(frame);
    moved = true;
  }
  return moved;
}

bool SimTransport::Match(int peer, const Frame& frame) {
  const auto found = posted_.find(KeyOf(peer, frame.tag));
  if (found == posted_.end()) return false;
  const Posted posted = found->second;
  posted_.erase(found);
  if (frame.bytes.size() > posted.capacity) Violate("a frame is longer than its receive");
  std::memcpy(posted.data, frame.bytes.data(), frame.bytes.size());
  posted.transfer->bytes = frame.bytes.size();
  posted.transfer->done = true;
  return true;
}

void SimTransport::Close(int64_t /*linger_us*/) {
  sending_.clear();
  posted_.clear();
}

}  // namespace hvd::sim
