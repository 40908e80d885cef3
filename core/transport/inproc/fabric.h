#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "transport/inproc/transport.h"
#include "transport/inproc/window.h"

namespace hvd::inproc {

// What the rank threads of one test have in common in place of sockets: it hands out their ends of
// windows and channels. Thread safe.
//
// A rank that asks again for the same set or channel gets an end of its next generation, so an
// engine can be shut down and made again on one fabric.
class Fabric {
 public:
  explicit Fabric(int size) : size_(size) {}
  int size() const { return size_; }

  // `rank` is the caller, one of the members. A set on several hosts has a window for each of them.
  std::unique_ptr<Window> MakeWindow(uint32_t set, const Members& members, GlobalRank rank,
                                     const Waker& waker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t name =
        uint64_t{set} * static_cast<uint64_t>(size_) + members[Position(0)].index();
    auto window = windows_.Get(name, rank, members.size());
    return std::make_unique<InprocWindow>(std::move(window), members.Find(rank), waker);
  }
  std::unique_ptr<Transport> MakeTransport(uint32_t channel, GlobalRank rank, const Waker& waker,
                                           bool peers_may_leave = false) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::make_unique<InprocTransport>(hubs_.Get(channel, rank, size_), rank.value(), waker,
                                             peers_may_leave);
  }

 private:
  using Key = std::pair<uint64_t, int>;

  // One object per (name, generation), made by whoever asks first and kept until all have asked.
  template <typename T>
  struct Registry {
    struct Entry {
      std::shared_ptr<T> object;
      int asked = 0;
    };
    std::map<Key, int> generation;  // by (name, rank)
    std::map<Key, Entry> entries;   // by (name, generation)

    std::shared_ptr<T> Get(uint64_t name, GlobalRank rank, int members) {
      const Key key{name, generation[{name, rank.value()}]++};
      Entry& entry = entries[key];
      if (!entry.object) entry.object = std::make_shared<T>(members);
      const std::shared_ptr<T> object = entry.object;
      if (++entry.asked == members) entries.erase(key);
      return object;
    }
  };

  const int size_;
  std::mutex mutex_;  // guards the registries
  Registry<SharedWindow> windows_;
  Registry<Hub> hubs_;
};

}  // namespace hvd::inproc
