#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/waker.h"
#include "transport/descriptor.h"
#include "transport/window.h"

namespace hvd {

// Whether one rank sleeps. It fills a cache line: its rank alone writes it, and whoever posts reads
// it from its own cache until it changes.
struct alignas(64) SleepWord {
  std::atomic<uint32_t> sleeping{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free,
              "sleep words are shared between processes");

// Publishes flags and rings the members that sleep; what is common to every Window.
//
// A poster stores its flag, then reads the sleep words; a sleeper stores its word, then reads the
// flags. Each has a full fence in between, so one of the two sees the other and no wake-up is lost.
// Sequentially consistent stores would not do: the flags are read with acquire alone, which may
// pass such a store.
class Doorbell {
 public:
  void SetOwn(SleepWord* word) { own_ = word; }
  // The waker may serve several windows; it is valid after its owner has gone.
  void AddPeer(Position position, const SleepWord* word, std::shared_ptr<const Descriptor> waker) {
    peers_.push_back({position, word, std::move(waker)});
  }

  void Post(Flag& flag, uint64_t value, Position reader) const {
    flag.store(value, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const Peer& peer : peers_) {
      if (reader != Window::kEverybody && reader != peer.position) continue;
      if (peer.word->sleeping.load(std::memory_order_relaxed) != 0) Waker::Ring(peer.waker->get());
    }
  }

  void Arm(bool sleeping) {
    const uint32_t word = sleeping ? 1 : 0;
    // What is written without need is taken from the caches of those who look at it.
    if (own_->sleeping.load(std::memory_order_relaxed) != word)
      own_->sleeping.store(word, std::memory_order_relaxed);
    if (sleeping) std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  struct Peer {
    Position position;
    const SleepWord* word;
    std::shared_ptr<const Descriptor> waker;
  };
  SleepWord* own_ = nullptr;
  std::vector<Peer> peers_;
};

}  // namespace hvd
