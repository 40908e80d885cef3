#include "runtime/control/gate.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/waker.h"
#include "check.h"
#include "transport/inproc/fabric.h"

namespace hvd {
namespace {

constexpr int kGates = 400;

// Where members meet after a poisoned gate, as they do at the sequencer.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  int round_ = 0;
};

struct Job {
  Job(int members, uint32_t random) : size(members), seed(random), fabric(members), meeting(size) {}
  // Whether a member wants the batch behind this gate to run.
  bool Wants(int member, int gate) const {
    return std::mt19937(seed + static_cast<uint32_t>(member * kGates + gate))() % (8 * size) != 0;
  }
  // What each vote carries at this gate: nothing at every third, else some or as much as may be.
  size_t PayloadBytes(int gate, size_t most) const {
    const uint32_t random = std::mt19937(seed * 31 + static_cast<uint32_t>(gate))();
    if (random % 3 == 0) return 0;
    const size_t units = most / Gate::kPayloadUnit;
    return random % 3 == 1 ? most : std::min<size_t>(units, random / 3 % 4) * Gate::kPayloadUnit;
  }
  std::vector<std::byte> PayloadOf(int member, int gate, size_t bytes) const {
    std::mt19937 random(seed + static_cast<uint32_t>(member * 7919 + gate));
    std::vector<std::byte> payload(bytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    return payload;
  }
  bool Passes(int gate) const {
    for (int member = 0; member < size; ++member) {
      if (!Wants(member, gate)) return false;
    }
    return true;
  }

  const int size;
  const uint32_t seed;
  std::vector<int> hosts;  // by member, where there are several
  inproc::Fabric fabric;
  Meeting meeting;
};

// One member, which comes to each gate sooner or later and looks at it before and after it votes.
class Voter {
 public:
  Voter(Job* job, int member) : job_(job), member_(member) {}
  virtual ~Voter() = default;

  void Run() {
    Make();
    std::mt19937 random(job_->seed + static_cast<uint32_t>(member_));
    for (int gate = 1; gate <= kGates; ++gate) {
      EXPECT_EQ(gate_->number(), static_cast<uint64_t>(gate));
      payload_bytes_ = job_->PayloadBytes(gate, gate_->most_payload());
      gate_->Expect(payload_bytes_);
      const bool passed = Pass(gate, random() % 4);
      EXPECT_EQ(passed, job_->Passes(gate));
      if (passed) CheckPayloads(gate);
      gate_->Advance();
      if (!passed) job_->meeting.Wait();
    }
    for (bool moved = false; !gate_->idle();) Progress(&moved);
    EXPECT_FALSE(gate_->corrupt().known());
    job_->meeting.Wait();
  }

 protected:
  virtual void Make() = 0;
  virtual void Progress(bool* /*moved*/) {}

  // Whether the batch runs.
  bool Pass(int gate, uint32_t hesitation) {
    for (;;) {
      bool moved = false;
      const Gate::Verdict verdict = gate_->Look(&moved);
      const bool poisoned = verdict == Gate::Verdict::kPoisoned;
      if (!gate_->voted() && (poisoned || hesitation-- == 0)) {
        const std::vector<std::byte> payload = job_->PayloadOf(member_, gate, payload_bytes_);
        gate_->Vote(!poisoned && job_->Wants(member_, gate), payload.data());
      }
      Progress(&moved);
      if (gate_->voted() && verdict != Gate::Verdict::kOpen) return !poisoned;
      std::this_thread::yield();
    }
  }

  void CheckPayloads(int gate) const {
    for (int member = 0; member < job_->size; ++member) {
      const std::vector<std::byte> sent = job_->PayloadOf(member, gate, payload_bytes_);
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), gate_->PayloadOf(Position(member))));
    }
  }

  Job* job_;
  const int member_;
  size_t payload_bytes_ = 0;
  Waker waker_;
  std::unique_ptr<Gate> gate_;
};

class WindowVoter : public Voter {
 public:
  using Voter::Voter;

 private:
  void Make() override {
    const Members all = Members::Everybody(job_->size);
    window_ = job_->fabric.MakeWindow(0, all, GlobalRank(member_), waker_);
    EXPECT_TRUE(MakeWindowGate(window_.get(), &gate_).ok());
  }
  std::unique_ptr<Window> window_;
};

class TransportVoter : public Voter {
 public:
  using Voter::Voter;
  ~TransportVoter() override {
    if (transport_ != nullptr) transport_->Close(0);
  }

 private:
  void Make() override {
    transport_ = job_->fabric.MakeTransport(0, GlobalRank(member_), waker_);
    gate_ = MakeTransportGate(transport_.get(), 0, Members::Everybody(job_->size));
  }
  void Progress(bool* moved) override { EXPECT_TRUE(transport_->Progress(moved).ok()); }
  std::unique_ptr<Transport> transport_;
};

// On hosts of Job::hosts.
class HostVoter : public Voter {
 public:
  using Voter::Voter;
  ~HostVoter() override {
    if (transport_ != nullptr) transport_->Close(0);
  }

 private:
  void Make() override {
    transport_ = job_->fabric.MakeTransport(0, GlobalRank(member_), waker_);
    std::vector<int> local;
    for (int member = 0; member < job_->size; ++member) {
      if (job_->hosts[static_cast<size_t>(member)] == job_->hosts[static_cast<size_t>(member_)])
        local.push_back(member);
    }
    window_ = job_->fabric.MakeWindow(0, Members(local), GlobalRank(member_), waker_);
    EXPECT_TRUE(MakeHostGate(window_.get(), transport_.get(), 0, Members::Everybody(job_->size),
                             Topology(job_->hosts, /*hosts_share_memory=*/true), &gate_)
                    .ok());
  }
  void Progress(bool* moved) override { EXPECT_TRUE(transport_->Progress(moved).ok()); }
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Window> window_;
};

template <typename V>
void Try(int members, uint32_t seed, std::vector<int> hosts = {}) {
  Job job(members, seed);
  job.hosts = std::move(hosts);
  std::vector<std::unique_ptr<V>> voters;
  for (int member = 0; member < members; ++member) {
    voters.push_back(std::make_unique<V>(&job, member));
  }
  std::vector<std::thread> threads;
  for (auto& voter : voters) threads.emplace_back([&voter] { voter->Run(); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Gate, AllMembersComeToTheSameVerdictOverSharedMemory) {
  for (const int members : {1, 2, 3, 4, 7}) Try<WindowVoter>(members, 11);
}

TEST(Gate, AllMembersComeToTheSameVerdictOverLinks) {
  for (const int members : {1, 2, 3, 4, 5, 8, 9, 13, 16}) Try<TransportVoter>(members, 12);
}

TEST(Gate, AllMembersComeToTheSameVerdictOnSeveralHosts) {
  const std::vector<std::vector<int>> shapes = {{0, 1},
                                                {0, 0, 1, 1},
                                                {0, 0, 1, 2, 2, 2},
                                                {0, 1, 0, 1, 0},
                                                {0, 1, 2, 3, 4},
                                                {0, 0, 1, 1, 2, 3, 3, 4},
                                                {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9}};
  for (const std::vector<int>& hosts : shapes)
    Try<HostVoter>(static_cast<int>(hosts.size()), 13, hosts);
}

// Two hosts of two; the flags of the first of them can be written by anybody.
struct FirstHost {
  FirstHost() {
    const Members all = Members::Everybody(4);
    const Topology topology({0, 0, 1, 1}, /*hosts_share_memory=*/true);
    for (int member = 0; member < 2; ++member) {
      transports.push_back(fabric.MakeTransport(0, GlobalRank(member), waker));
      windows.push_back(fabric.MakeWindow(0, Members({0, 1}), GlobalRank(member), waker));
    }
    std::thread other([&] { Make(1, all, topology); });
    Make(0, all, topology);
    other.join();
  }
  ~FirstHost() {
    for (auto& transport : transports) transport->Close(0);
  }
  void Make(size_t member, const Members& all, const Topology& topology) {
    EXPECT_TRUE(MakeHostGate(windows[member].get(), transports[member].get(), 0, all, topology,
                             &gates[member])
                    .ok());
  }
  // Of the ballot of a member: its vote, or, behind that, what the first tells.
  Flag& FlagOf(int member, size_t line) {
    return *reinterpret_cast<Flag*>(windows[0]->Span(Position(member), 0) + 64 * line);
  }

  inproc::Fabric fabric{4};
  Waker waker;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Window>> windows;
  std::unique_ptr<Gate> gates[2];
};

TEST(Gate, AVoteThatCannotBeRightIsNotBelieved) {
  bool moved = false;
  FirstHost votes;
  votes.FlagOf(1, 0).store(4);  // of the second gate
  votes.gates[0]->Vote(true, nullptr);
  EXPECT_TRUE(votes.gates[0]->Look(&moved) == Gate::Verdict::kOpen);
  EXPECT_EQ(votes.gates[0]->corrupt(), Position(1));

  for (const uint64_t verdict : {uint64_t{2}, uint64_t{4}, uint64_t{7}}) {
    FirstHost told;
    told.FlagOf(0, 1).store(verdict);  // before this member has voted
    EXPECT_TRUE(told.gates[1]->Look(&moved) == Gate::Verdict::kOpen);
    EXPECT_EQ(told.gates[1]->corrupt(), Position(0));
  }
}

// What a vote over a link can say: a word, or a payload of the length that is expected.
TEST(Gate, AVoteOverALinkThatCannotBeRightIsNotBelieved) {
  constexpr size_t kPayload = 16;
  const auto corrupt = [](size_t payload, const std::vector<uint8_t>& frame) {
    inproc::Fabric fabric(2);
    Waker waker;
    const auto transport = fabric.MakeTransport(0, GlobalRank(0), waker);
    const auto peer = fabric.MakeTransport(0, GlobalRank(1), waker);
    const auto gate = MakeTransportGate(transport.get(), 0, Members::Everybody(2));
    const std::vector<std::byte> own(payload);
    Transfer sent;
    peer->Send(GlobalRank(0), {0, 1, 1}, frame.data(), frame.size(), &sent);
    gate->Expect(payload);
    gate->Vote(true, own.data());
    bool moved = false;
    Gate::Verdict verdict = Gate::Verdict::kOpen;
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(peer->Progress(&moved).ok());
      EXPECT_TRUE(transport->Progress(&moved).ok());
      verdict = gate->Look(&moved);
    }
    const bool open = verdict == Gate::Verdict::kOpen;
    EXPECT_EQ(open, gate->corrupt().known());
    EXPECT_TRUE(!open || gate->corrupt() == Position(1));
    for (const auto& end : {transport.get(), peer.get()}) end->Close(0);
    return open;
  };
  EXPECT_FALSE(corrupt(0, {0}));
  EXPECT_FALSE(corrupt(0, {1}));
  EXPECT_FALSE(corrupt(kPayload, {1}));
  EXPECT_FALSE(corrupt(kPayload, std::vector<uint8_t>(kPayload, 2)));
  EXPECT_TRUE(corrupt(0, {2}));
  EXPECT_TRUE(corrupt(0, {}));
  EXPECT_TRUE(corrupt(kPayload, {0}));
  EXPECT_TRUE(corrupt(kPayload, {2}));
  EXPECT_TRUE(corrupt(kPayload, {}));
  EXPECT_TRUE(corrupt(kPayload, std::vector<uint8_t>(kPayload / 2, 1)));
}

}  // namespace
}  // namespace hvd
