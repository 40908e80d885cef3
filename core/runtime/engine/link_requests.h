#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/rank.h"
#include "base/topology.h"
#include "base/waker.h"

namespace hvd {

// A link that this rank wants.
struct WantedLink {
  GlobalRank peer;
  LinkRole role = LinkRole::kData;
};

// What this rank's transports lack, on its way to the thread that makes links: each is asked for
// once, and open until it is made. Thread safe.
class LinkRequests {
 public:
  const Status& status() const { return waker_.status(); }

  // Never waits: for who holds the progress lock. False: no more links are made.
  bool Ask(const WantedLink& wanted);

  // For who makes them: those that were asked for since the last call. False: there will be no
  // more, and nobody needs those that are still missing.
  bool Take(std::vector<WantedLink>* wanted);
  // Readable when Take has something to say.
  int fd() const { return waker_.fd(); }

  void Made(const WantedLink& made);
  // Whether one to a rank that was asked for is not made.
  bool open() const;
  void Close();

  // For people: a line about each that is missing for `limit_us` and of which this was not said
  // before. `job`: where the ranks run.
  std::vector<std::string> TakeOverdue(GlobalRank rank, const Topology& job, int64_t now_us,
                                       int64_t limit_us);
  // The same of all that are missing, each time.
  std::vector<std::string> Missing(GlobalRank rank, const Topology& job) const;

 private:
  struct Open {
    WantedLink wanted;
    int64_t since_us;
    bool told = false;
  };

  const Waker waker_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<WantedLink> untaken_;
  std::vector<Open> open_;
  bool over_ = false;
};

}  // namespace hvd
