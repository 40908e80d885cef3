#include "runtime/engine/link_requests.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hvd {

namespace {

// One for all links to a rank that serve the same purpose.
void Add(std::string line, std::vector<std::string>* lines) {
  if (std::find(lines->begin(), lines->end(), line) == lines->end())
    lines->push_back(std::move(line));
}

std::string LineAbout(GlobalRank rank, const Topology& job, const WantedLink& wanted) {
  return Name(rank) + " waits for its " + Name(wanted.role) + " link to " +
         job.Describe(wanted.peer) + ", which is made when it is first used";
}

}  // namespace

bool LinkRequests::Ask(const WantedLink& wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return false;
  if (wanted.peer.known()) open_.push_back({wanted, NowMicros()});
  untaken_.push_back(wanted);
  waker_.Ring();
  return true;
}

bool LinkRequests::Take(std::vector<WantedLink>* wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wanted->clear();
  if (over_) return false;  // and it stays readable
  waker_.Drain();
  wanted->swap(untaken_);
  return true;
}

void LinkRequests::Made(const WantedLink& made) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_it = [&](const Open& open) {
    return open.wanted.peer == made.peer && open.wanted.role == made.role;
  };
  open_.erase(std::remove_if(open_.begin(), open_.end(), is_it), open_.end());
}

bool LinkRequests::open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !open_.empty();
}

void LinkRequests::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
  waker_.Ring();
}

std::vector<std::string> LinkRequests::TakeOverdue(GlobalRank rank, const Topology& job,
                                                   int64_t now_us, int64_t limit_us) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> lines;
  for (Open& open : open_) {
    const bool overdue = now_us - open.since_us >= limit_us;
    if (overdue && !std::exchange(open.told, true)) {
      Add(LineAbout(rank, job, open.wanted), &lines);
    }
  }
  return lines;
}

std::vector<std::string> LinkRequests::Missing(GlobalRank rank, const Topology& job) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> lines;
  for (const Open& open : open_) Add(LineAbout(rank, job, open.wanted), &lines);
  return lines;
}

}  // namespace hvd
