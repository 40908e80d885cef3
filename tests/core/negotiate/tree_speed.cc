// What a step of 200 known tensors costs each node of the tree of 10,000 ranks, and the memory that
// it keeps: a node decodes what its children send, merges it, encodes its own and takes note of the
// responses.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "requests.h"
#include "sim_tree.h"

namespace {

size_t live = 0;  // bytes of `new`

}  // namespace

void* operator new(size_t bytes) {
  auto* block = static_cast<size_t*>(std::malloc(bytes + 2 * sizeof(size_t)));
  if (block == nullptr) throw std::bad_alloc();
  *block = bytes + 2 * sizeof(size_t);
  live += *block;
  return block + 2;
}
void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  size_t* block = static_cast<size_t*>(memory) - 2;
  live -= *block;
  std::free(block);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace hvd::negotiate {
namespace {

constexpr int kTensors = 200;
constexpr int kChunks = 4;
constexpr Micros kStep = 1'000'000;

struct Cost {
  double seconds = 0;
  long long bytes = 0;
};

class Meter {
 public:
  explicit Meter(Cost* cost) : cost_(cost), live_(live), begin_(Now()) {}
  ~Meter() {
    cost_->seconds += Now() - begin_;
    cost_->bytes += static_cast<long long>(live) - static_cast<long long>(live_);
  }

 private:
  static double Now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  Cost* const cost_;
  const size_t live_;
  const double begin_;
};

std::string LeafMessage(int chunk, bool full, uint64_t announced) {
  AnnounceMessage message;
  constexpr int kEach = kTensors / kChunks;
  for (int t = chunk * kEach; full && t < (chunk + 1) * kEach; ++t) {
    const std::string name = "model.layers." + std::to_string(t) + ".attention.weight";
    message.announcements.push_back(Full(Allreduce(name, {1000})));
  }
  if (!full) message.announcements.push_back(Run(static_cast<uint32_t>(chunk * kEach), kEach));
  // The program waits when it has submitted all.
  message.all_urgent = message.some_urgent = chunk + 1 == kChunks ? announced : 0;
  std::string bytes;
  Encode(message, &bytes);
  return bytes;
}

class Job {
 public:
  Job(int ranks, int per_host) : costs_(0) {
    SequencerOptions options;
    options.members = Members::Everybody(ranks);
    options.learning.repeats = 0;  // the ranks follow no schedule
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / per_host);
    tree_ = std::make_unique<SimTree>(options, Topology(hosts, true), Topology::kFewHosts);
    costs_.resize(static_cast<size_t>(tree_->nodes()));
  }

  void Step(bool full) {
    now_ += kStep;
    announced_ += kTensors;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const std::string bytes = LeafMessage(chunk, full, announced_);
      // A parent's number is lower.
      std::vector<std::vector<std::string>> sent(costs_.size());
      for (int node = tree_->nodes() - 1; node >= 0; --node) {
        const std::vector<SimTree::Target>& children = tree_->ChildrenOf(node);
        for (size_t c = 0; c < children.size(); ++c) {
          const int below = children[c].node;
          if (below < 0) Hear({node, c}, bytes, &sent[static_cast<size_t>(node)]);
          if (below < 0) continue;
          for (const std::string& one : sent[static_cast<size_t>(below)])
            Hear({node, c}, one, &sent[static_cast<size_t>(node)]);
        }
      }
      Drop(&sent);
      now_ += 100'000;
      Publish();
    }
  }

  void Forget() {
    for (Cost& cost : costs_) cost.seconds = 0;
  }
  const std::vector<Cost>& costs() const { return costs_; }

 private:
  // What is on its way belongs to no node.
  static void Send(std::string bytes, std::vector<std::string>* sent) {
    const size_t before = live;
    sent->push_back(std::move(bytes));
    live = before;
    const std::string& last = sent->back();
    if (last.capacity() > 15) live -= last.capacity() + 1 + 2 * sizeof(size_t);
  }
  static void Drop(std::vector<std::vector<std::string>>* sent) {
    const size_t before = live;
    sent->clear();
    live = before;
  }

  void Hear(SimTree::Place at, const std::string& bytes, std::vector<std::string>* sent) {
    const Meter meter(&costs_[static_cast<size_t>(at.node)]);
    AnnounceMessage message;
    if (!Decode(bytes, &message).ok()) std::abort();
    std::vector<AnnounceMessage> up;
    if (!tree_->Announce(at, std::move(message), now_, &up).ok()) std::abort();
    for (const AnnounceMessage& merged : up) {
      std::string encoded;
      Encode(merged, &encoded);
      Send(std::move(encoded), sent);
    }
  }

  void Publish() {
    std::vector<std::vector<std::string>> published(1);
    std::vector<std::string>& responses = published[0];
    {
      const Meter meter(&costs_[SimTree::kRoot]);
      while (auto response = tree_->root().Next(now_)) {
        std::string encoded;
        Encode(*response, &encoded);
        Send(std::move(encoded), &responses);
      }
    }
    for (int node = 1; node < tree_->nodes(); ++node) {
      const Meter meter(&costs_[static_cast<size_t>(node)]);
      for (const std::string& bytes : responses) {
        Response response;
        if (!Decode(bytes, &response).ok() || !tree_->Pass(node, response).ok()) std::abort();
      }
    }
    Drop(&published);
  }

  std::unique_ptr<SimTree> tree_;
  std::vector<Cost> costs_;
  Micros now_ = 0;
  uint64_t announced_ = 0;
};

void Measure(int ranks, int per_host) {
  Job job(ranks, per_host);
  job.Step(true);
  // Of each node the least: what else the machine does is none of its own.
  std::vector<double> least(job.costs().size(), 1e9);
  for (int step = 0; step < 3; ++step) {
    job.Forget();
    job.Step(false);
    for (size_t node = 0; node < least.size(); ++node)
      least[node] = std::min(least[node], job.costs()[node].seconds);
  }
  const double busiest = *std::max_element(least.begin(), least.end());
  long long bytes = 0;
  for (const Cost& cost : job.costs()) bytes = std::max(bytes, cost.bytes);
  std::printf(
      "%6d ranks, %4d on a host: %7.3f ms of CPU on the busiest node, %5.1f KiB kept on the "
      "largest\n",
      ranks, per_host, 1e3 * busiest, static_cast<double>(bytes) / 1024);
}

}  // namespace
}  // namespace hvd::negotiate

int main() {
  for (const int per_host : {8, 1, 32}) hvd::negotiate::Measure(10000, per_host);
  hvd::negotiate::Measure(8, 8);
}
