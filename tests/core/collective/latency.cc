// Prints how long a small allreduce takes over links with a delay, by the number of ranks: by the
// exchange that is chosen, and around a ring. Ranks are threads; a relay holds every byte between
// two of them for 20 ms, beside which a busy machine counts little.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "collective/transport_collectives.h"
#include "transport/tcp/transport.h"
#include "transport/transport_ranks.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int kCalls = 5;
constexpr int kMostRanks = 16;  // each link has four descriptors

// All links between ranks pass through it.
class Relay {
 public:
  explicit Relay(int64_t delay_us) : delay_us_(delay_us) {}
  ~Relay() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    for (const Way& way : ways_) close(way.from);
  }

  // The two ends of a link.
  SocketPair Connect() {
    const auto [a, inner_a] = UnixPair();
    const auto [b, inner_b] = UnixPair();
    ways_.push_back({inner_a, inner_b, {}});
    ways_.push_back({inner_b, inner_a, {}});
    return {a, b};
  }

  void Start() {
    thread_ = std::thread([this] {
      while (!stop_) {
        bool moved = false;
        for (Way& way : ways_) moved |= Move(&way);
        if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }

 private:
  struct Parcel {
    int64_t due_us;
    std::vector<char> bytes;
  };
  struct Way {
    int from, to;
    std::deque<Parcel> parcels;
  };

  bool Move(Way* way) const {
    char buffer[64 << 10];
    const ssize_t got = recv(way->from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) way->parcels.push_back({NowMicros() + delay_us_, {buffer, buffer + got}});
    bool moved = got > 0;
    while (!way->parcels.empty() && way->parcels.front().due_us <= NowMicros()) {
      std::vector<char>& bytes = way->parcels.front().bytes;
      const ssize_t sent = send(way->to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent <= 0) break;
      moved = true;
      bytes.erase(bytes.begin(), bytes.begin() + sent);
      if (bytes.empty()) way->parcels.pop_front();
    }
    return moved;
  }

  const int64_t delay_us_;
  std::vector<Way> ways_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

enum class Algorithm { kChosen, kRing };

Status Run(Transport* transport, StepMachine* machine) {
  for (;;) {
    bool moved = false;
    HVD_RETURN_IF_ERROR(transport->Progress(&moved));
    const Step step = machine->Advance();
    if (step == Step::kDone) return Status::Ok();
    if (step == Step::kFailed) return machine->status();
    if (step == Step::kBlocked && !moved) std::this_thread::yield();
  }
}

// Milliseconds of the fastest call, on the slowest rank of it.
double Measure(int ranks, int64_t delay_us, int64_t bytes, Algorithm algorithm) {
  Relay relay(delay_us);
  const auto links = Mesh(ranks, [&] { return relay.Connect(); });
  relay.Start();
  std::vector<std::vector<int64_t>> took(kCalls, std::vector<int64_t>(static_cast<size_t>(ranks)));
  std::vector<int> everybody(static_cast<size_t>(ranks));
  std::iota(everybody.begin(), everybody.end(), 0);
  RunRanks(ranks, [&](int rank) {
    tcp::TcpTransport::Options options;
    options.rank = GlobalRank(rank);
    options.size = ranks;
    std::unique_ptr<tcp::TcpTransport> transport;
    ASSERT_OK(tcp::TcpTransport::Make(options, links[static_cast<size_t>(rank)], &transport));
    const Communicator comm{transport.get(),     0, Members(everybody), Position(rank),
                            ScratchPool::Make(), {}};
    std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 1.0f);
    auto* at = reinterpret_cast<std::byte*>(data.data());
    for (int call = 0; call < kCalls; ++call) {
      const auto barrier = MakeDisseminationBarrier(comm, static_cast<uint64_t>(2 * call));
      ASSERT_OK(Run(transport.get(), barrier.get()));
      CollectiveSpec spec;
      spec.sequence = static_cast<uint64_t>(2 * call + 1);
      spec.pieces.push_back({at, at, static_cast<int64_t>(data.size() * sizeof(float))});
      const int64_t began = NowMicros();
      const auto machine = algorithm == Algorithm::kRing ? MakeRingAllreduce(comm, spec)
                                                         : MakeLinkAllreduce(comm, spec);
      ASSERT_OK(Run(transport.get(), machine.get()));
      took[static_cast<size_t>(call)][static_cast<size_t>(rank)] = NowMicros() - began;
    }
    transport->Close(100'000);
  });
  int64_t best = INT64_MAX;
  for (const auto& call : took) best = std::min(best, *std::max_element(call.begin(), call.end()));
  return static_cast<double>(best) / 1000;
}

void Print(int64_t delay_us, int64_t bytes) {
  std::printf("%lld bytes, %.1f ms one way\n%5s %18s %10s %10s\n", static_cast<long long>(bytes),
              static_cast<double>(delay_us) / 1000, "ranks", "chosen", "ms", "ring ms");
  for (int ranks = 2; ranks <= kMostRanks;
       ranks = ranks % 2 == 0 && ranks != 2 ? ranks * 2 : ranks + 1) {
    const ExchangePlan plan = CheapestPlan(ranks, bytes, LinkCosts());
    std::string name = plan.form == ExchangePlan::Form::kWhole ? "whole" : "blocks";
    for (const int radix : plan.radices) name += " " + std::to_string(radix);
    std::printf("%5d %18s %10.1f %10.1f\n", ranks, name.c_str(),
                Measure(ranks, delay_us, bytes, Algorithm::kChosen),
                Measure(ranks, delay_us, bytes, Algorithm::kRing));
    std::fflush(stdout);
  }
}

TEST(Latency, Small) { Print(20'000, 64); }
TEST(Latency, Medium) { Print(20'000, 64 << 10); }

}  // namespace
}  // namespace hvd::test
