#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/world.h"
#include "transport/transport.h"

namespace hvd::sim {

// A frame under way, or arrived and not received.
struct Frame {
  Nanos arrives;
  FrameTag tag;
  std::string bytes;
};

struct Traffic {
  uint64_t frames = 0;
  uint64_t bytes = 0;
};

// The links among all ranks, in order from each rank to each other one. What is lost is sent again,
// so that it, and what comes behind it on its link, arrives late.
class Links {
 public:
  Links(World* world, Network network, int ranks)
      : world_(world),
        network_(network),
        ranks_(ranks),
        sent_(static_cast<size_t>(ranks)),
        peers_(static_cast<size_t>(ranks)) {}

  void Send(int from, int to, const FrameTag& tag, const void* data, size_t bytes);
  // What has arrived there and was not taken, by sender.
  std::map<int, std::deque<Frame>>& ArrivedAt(int rank) { return under_way_[rank]; }

  World& world() { return *world_; }
  const Network& network() const { return network_; }
  int ranks() const { return ranks_; }
  // With how many others a rank has exchanged something: so many links it has.
  int PeersOf(int rank) const;
  const Traffic& SentBy(int rank) const { return sent_[static_cast<size_t>(rank)]; }

 private:
  World* world_;
  const Network network_;
  const int ranks_;
  std::map<int, std::map<int, std::deque<Frame>>> under_way_;  // by receiver and sender
  std::vector<Traffic> sent_;
  std::vector<std::set<int>> peers_;
};

// One rank's end of them. As in production, a frame whose receive is not posted holds up what
// comes behind it for its process set.
class SimTransport : public Transport {
 public:
  SimTransport(Links* links, int rank) : links_(links), rank_(rank) {}

  GlobalRank rank() const override { return GlobalRank(rank_); }
  int size() const override { return links_->ranks(); }
  void Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
            Transfer* transfer) override;
  void Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
            Transfer* transfer) override;
  void Forget(uint32_t set) override;
  Status Progress(bool* moved) override;
  GlobalRank lost_peer() const override { return {}; }
  GlobalRank TakeEnded() override { return {}; }
  int poll_fd() const override { return -1; }
  void Close(int64_t linger_us) override;

 private:
  using Key = std::tuple<int, uint32_t, uint64_t, uint32_t>;  // peer, set, sequence, chunk
  struct Posted {
    void* data;
    size_t capacity;
    Transfer* transfer;
  };
  static Key KeyOf(int peer, const FrameTag& tag) {
    return {peer, tag.set, tag.sequence, tag.chunk};
  }
  bool Receive(int peer, std::deque<Frame>* frames);
  bool Match(int peer, const Frame& frame);

  Links* links_;
  const int rank_;
  std::vector<Transfer*> sending_;
  std::map<Key, Posted> posted_;
};

}  // namespace hvd::sim
