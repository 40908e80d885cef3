#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "negotiate/random.h"

namespace hvd::sim {

using Nanos = int64_t;  // virtual time, from 0 on
using negotiate::Random;

constexpr Nanos kMicro = 1000;

// What a message between two hosts costs (after the LogP model: D. Culler et al., 1993).
struct Network {
  const char* name;
  Nanos latency;          // of the wire
  Nanos jitter;           // at most so much more
  Nanos overhead;         // of the processor, to send a frame and again to receive it
  double bytes_per_nano;  // of a link
  uint64_t lost_one_in;   // frames; 0: none
  Nanos retransmission;   // until a lost one is sent again
};
constexpr Network kInfiniBand{"InfiniBand", 1500, 300, 300, 12.5, 0, 0};
constexpr Network kTcp{"TCP", 25'000, 10'000, 3000, 1.25, 0, 0};
constexpr Network kLossy{"lossy TCP", 25'000, 60'000, 3000, 1.25, 20, 2'000'000};

// Where a violated rule was found.
struct Violation {
  std::string what;
};

[[noreturn]] inline void Violate(std::string what) { throw Violation{std::move(what)}; }

// Something that acts when its time has come.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual void Act() = 0;
};

// Virtual time, and who acts when. Everything that happens follows from the seed.
class World {
 public:
  World(int ranks, uint64_t seed) : random_(seed), seats_(static_cast<size_t>(ranks)) {}

  Nanos now() const { return now_; }
  int64_t micros() const { return now_ / 1000; }
  Random& random() { return random_; }

  void Place(int rank, Actor* actor) { At(rank).actor = actor; }

  // The rank acts then, or when its processor is free.
  void Wake(int rank, Nanos when);
  // Likewise, unless it is called again before; -1: never.
  void SetTimer(int rank, Nanos when);
  // Its processor is taken for so long: it does not act before.
  void Spend(int rank, Nanos time);
  // When it is done with what it has spent so far: what it sends now leaves then.
  Nanos FreeAt(int rank) const {
    return std::max(now_, seats_[static_cast<size_t>(rank)].busy_until);
  }
  // From now on it acts no more.
  void Stop(int rank) { At(rank).stopped = true; }
  bool stopped(int rank) const { return seats_[static_cast<size_t>(rank)].stopped; }

  // Lets whoever is next act. False: nobody will ever act again.
  bool Next();

 private:
  struct Seat {
    Actor* actor = nullptr;
    Nanos busy_until = 0;
    bool resumes = false;  // an event waits for that
    uint64_t timer = 0;    // the latest
    bool stopped = false;
  };
  struct Event {
    Nanos when;
    uint64_t order;  // among those of one moment: by chance
    int rank;
    uint64_t timer;  // its number; 0: none
    bool operator<(const Event& o) const {
      return when != o.when ? when > o.when : order > o.order;
    }
  };
  Seat& At(int rank) { return seats_[static_cast<size_t>(rank)]; }

  Nanos now_ = 0;
  Random random_;
  std::vector<Seat> seats_;
  std::priority_queue<Event> events_;
};

}  // namespace hvd::sim
