#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"

namespace hvd::peer {

// What a receive asks for, and what a message has. A source that is not known: from anybody.
struct Envelope {
  GlobalRank source;
  uint32_t set = 0;
  int64_t tag = 0;
};

// Which message a receive gets. Messages of one source, process set and tag are received in the
// order in which they were sent, by the receives that fit them in the order of posting: a message
// takes the oldest receive that fits, a receive the oldest message. Pure.
template <typename Receive, typename Message>
class Matching {
 public:
  // A receive is posted. The message that it gets; none: it waits for one.
  std::optional<Message> Post(const Envelope& wanted, Receive receive) {
    std::optional<Message> message = TakeMessage(wanted);
    if (!message) {
      posted_[KeyOf(wanted)].push_back({++clock_, std::move(receive)});
      ++receives_;
    }
    return message;
  }

  // A message has arrived: the receive that gets it. None: Keep it.
  std::optional<Receive> Arrive(const Envelope& envelope) {
    const auto exact = posted_.find(KeyOf(envelope));
    const auto any = posted_.find(KeyOf({GlobalRank(), envelope.set, envelope.tag}));
    if (exact == posted_.end() && any == posted_.end()) return std::nullopt;
    const bool exact_first =
        any == posted_.end() ||
        (exact != posted_.end() && exact->second.front().time < any->second.front().time);
    --receives_;
    return TakeFront(&posted_, exact_first ? exact : any);
  }

  void Keep(const Envelope& envelope, Message message) {
    Lane& lane = kept_[{envelope.set, envelope.tag}];
    lane[envelope.source].push_back({++clock_, std::move(message)});
    ++messages_;
  }

  // The set is no more: its messages, which nobody will ask for.
  std::vector<Message> Forget(uint32_t set) {
    std::vector<Message> dropped;
    for (auto lane = kept_.begin(); lane != kept_.end();) {
      if (lane->first.set != set) {
        ++lane;
        continue;
      }
      for (auto& [source, queue] : lane->second) {
        for (auto& item : queue) dropped.push_back(std::move(item.value));
      }
      lane = kept_.erase(lane);
    }
    messages_ -= dropped.size();
    return dropped;
  }

  void Clear() noexcept {
    posted_.clear();
    kept_.clear();
    receives_ = 0;
    messages_ = 0;
  }

  size_t receives() const { return receives_; }  // that wait
  size_t messages() const { return messages_; }  // that are kept

 private:
  template <typename T>
  struct Item {
    uint64_t time;
    T value;
  };
  struct Key {
    uint32_t set;
    int64_t tag;
    int source = 0;
    bool operator==(const Key& o) const {
      return set == o.set && tag == o.tag && source == o.source;
    }
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const {
      uint64_t hash = static_cast<uint64_t>(key.tag) * 0x9E3779B97F4A7C15u;
      hash ^= (uint64_t{key.set} << 32 | static_cast<uint32_t>(key.source)) + (hash >> 29);
      return static_cast<size_t>(hash * 0x9E3779B97F4A7C15u >> 16);
    }
  };
  using Lane = std::map<GlobalRank, std::deque<Item<Message>>>;  // of one set and tag

  static Key KeyOf(const Envelope& envelope) {
    return {envelope.set, envelope.tag, envelope.source.value()};
  }

  template <typename Map>
  static auto TakeFront(Map* map, typename Map::iterator at) {
    auto value = std::move(at->second.front().value);
    at->second.pop_front();
    if (at->second.empty()) map->erase(at);
    return value;
  }

  std::optional<Message> TakeMessage(const Envelope& wanted) {
    const auto lane = kept_.find({wanted.set, wanted.tag});
    if (lane == kept_.end()) return std::nullopt;
    auto oldest = lane->second.find(wanted.source);
    if (!wanted.source.known()) {
      oldest = lane->second.begin();
      for (auto at = lane->second.begin(); at != lane->second.end(); ++at) {
        if (at->second.front().time < oldest->second.front().time) oldest = at;
      }
    }
    if (oldest == lane->second.end()) return std::nullopt;
    Message message = TakeFront(&lane->second, oldest);
    if (lane->second.empty()) kept_.erase(lane);
    --messages_;
    return message;
  }

  std::unordered_map<Key, std::deque<Item<Receive>>, HashOfKey> posted_;  // none is empty
  std::unordered_map<Key, Lane, HashOfKey> kept_;  // by set and tag; likewise
  uint64_t clock_ = 0;
  size_t receives_ = 0;
  size_t messages_ = 0;
};

}  // namespace hvd::peer
