#include "runtime/control/watermarks.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/waker.h"
#include "check.h"
#include "transport/inproc/fabric.h"

namespace hvd {
namespace {

using negotiate::Batches;
using negotiate::kNoEnd;
using negotiate::Marks;

constexpr int kSchedules = 20;
constexpr uint64_t kMostBatches = 90;  // that a member submits of one

// Where members meet after a schedule, as they do at the sequencer.
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

// A job on `hosts`, by member; empty: over links alone.
struct Job {
  Job(int members, uint32_t random, std::vector<int> h, bool shares)
      : size(members),
        seed(random),
        topology(h.empty() ? std::vector<int>(static_cast<size_t>(members), 0) : h, shares),
        fabric(members),
        meeting(size),
        ran(kSchedules) {}

  std::mt19937 Random(int schedule, int salt) const {
    return std::mt19937(seed + static_cast<uint32_t>(schedule * 1009 + salt));
  }
  // How many batches of a schedule a member submits before it does something else.
  uint64_t Submits(int member, int schedule) const {
    return 20 + Random(schedule, 7 + member)() % (kMostBatches - 20);
  }
  // By batch: nothing, some, or as much as may be.
  std::vector<size_t> Payloads(int schedule, size_t most) const {
    std::mt19937 random = Random(schedule, 3);
    const bool ever = random() % 4 != 0;
    std::vector<size_t> payloads(1 + random() % 5);
    for (size_t& bytes : payloads) {
      const uint32_t kind = ever ? random() % 4 : 0;
      bytes = kind < 2 ? 0 : kind == 2 ? most : std::min(most, negotiate::kPayloadUnit);
    }
    return payloads;
  }
  std::vector<std::byte> PayloadOf(int member, int schedule, uint64_t batch, size_t bytes) const {
    std::mt19937 random = Random(schedule, 7919 * member + static_cast<int>(batch));
    std::vector<std::byte> payload(bytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    return payload;
  }

  const int size;
  const uint32_t seed;
  const Topology topology;
  inproc::Fabric fabric;
  Meeting meeting;
  std::vector<std::atomic<uint64_t>> ran;  // batches, by schedule, of all members together
  std::atomic<int> idle{0};
};

class Member {
 public:
  Member(Job* job, int member) : job_(job), member_(member), random_(job->seed + 31u * member) {}
  ~Member() { transport_->Close(0); }

  void Run() {
    Make();
    for (int schedule = 0; schedule < kSchedules; ++schedule) {
      marks_->Begin(job_->Payloads(schedule, marks_->most_payload()));
      const uint64_t base = marks_->batches().base();
      Follow(schedule);
      marks_->Leave(base + ran_);
      job_->ran[static_cast<size_t>(schedule)] += ran_;
      Progress();
      job_->meeting.Wait();
      EXPECT_EQ(job_->ran[static_cast<size_t>(schedule)], ran_ * static_cast<uint64_t>(job_->size));
      total += ran_;
    }
    for (bool idle = false; job_->idle < job_->size;) {
      Progress();
      if (!std::exchange(idle, idle || marks_->idle()) && idle) ++job_->idle;
    }
    EXPECT_FALSE(marks_->corrupt().known());
    job_->meeting.Wait();
  }

  uint64_t total = 0;

 private:
  void Make() {
    transport_ = job_->fabric.MakeTransport(0, GlobalRank(member_), waker_);
    const Position self(member_);
    if (job_->topology.hosts_share_memory()) {
      std::vector<int> local;
      for (const Position m : job_->topology.OnHost(job_->topology.HostOf(self)))
        local.push_back(m.value());
      window_ = job_->fabric.MakeWindow(0, ::hvd::Members(local), GlobalRank(member_), waker_);
    }
    EXPECT_TRUE(Watermarks::Make(window_.get(), transport_.get(), 0, Members::Everybody(job_->size),
                                 job_->topology, self, &marks_)
                    .ok());
  }

  void Progress() {
    bool moved = false;
    marks_->Look(&moved);
    EXPECT_TRUE(transport_->Progress(&moved).ok());
  }

  // As a process set does (runtime/progress/following.cc).
  void Follow(int schedule) {
    const uint64_t base = marks_->batches().base();
    const uint64_t submits = job_->Submits(member_, schedule);
    uint64_t complete = 0;
    for (ran_ = 0;;) {
      if (random_() % 2 == 0) complete = std::min(complete + 1 + random_() % 6, submits);
      Publish(schedule, complete, submits);
      bool moved = false;
      marks_->Look(&moved);
      EXPECT_TRUE(base + ran_ <= marks_->all().ready);
      while (base + ran_ < marks_->all().ready) CheckPayloads(schedule, ++ran_);
      EXPECT_TRUE(ran_ <= complete);
      if (marks_->all().over()) return;
      EXPECT_TRUE(transport_->Progress(&moved).ok());
      std::this_thread::yield();
    }
  }

  void Publish(int schedule, uint64_t complete, uint64_t submits) {
    if (marks_->own().ended()) return;
    if (complete == submits && random_() % 4 == 0) return marks_->End();
    const Batches& batches = marks_->batches();
    const uint64_t ready =
        std::min(batches.base() + complete, batches.Reach(batches.base() + ran_));
    if (ready == marks_->own().ready) return;
    const auto payload =
        job_->PayloadOf(member_, schedule, ready - batches.base(), batches.PayloadOf(ready));
    std::copy(payload.begin(), payload.end(), marks_->Room(ready));
    marks_->Publish(ready, NowMicros());
  }

  void CheckPayloads(int schedule, uint64_t batch) const {
    const uint64_t number = marks_->batches().base() + batch;
    const size_t bytes = marks_->batches().PayloadOf(number);
    EXPECT_TRUE(bytes == 0 || number == marks_->all().ready);
    for (int member = 0; bytes > 0 && member < job_->size; ++member) {
      const auto sent = job_->PayloadOf(member, schedule, batch, bytes);
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), marks_->PayloadOf(Position(member))));
    }
  }

  Job* job_;
  const int member_;
  std::mt19937 random_;
  uint64_t ran_ = 0;
  Waker waker_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Window> window_;
  std::unique_ptr<Watermarks> marks_;
};

void Try(int members, uint32_t seed, std::vector<int> hosts, bool shares_memory) {
  Job job(members, seed, std::move(hosts), shares_memory);
  std::vector<std::unique_ptr<Member>> all;
  for (int member = 0; member < members; ++member)
    all.push_back(std::make_unique<Member>(&job, member));
  std::vector<std::thread> threads;
  for (auto& member : all) threads.emplace_back([&member] { member->Run(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(all.front()->total > 0);
}

TEST(Watermarks, AllMembersRunTheSameOverSharedMemory) {
  for (const int members : {1, 2, 3, 4, 7}) Try(members, 11, {}, true);
}

TEST(Watermarks, AllMembersRunTheSameOverLinks) {
  for (const int members : {2, 3, 4, 5, 8, 9, 13, 16}) Try(members, 12, {}, false);
}

TEST(Watermarks, AllMembersRunTheSameOnSeveralHosts) {
  const std::vector<std::vector<int>> shapes = {{0, 1},
                                                {0, 0, 1, 1},
                                                {0, 0, 1, 2, 2, 2},
                                                {0, 1, 0, 1, 0},
                                                {0, 1, 2, 3, 4},
                                                {0, 0, 1, 1, 2, 3, 3, 4},
                                                {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9}};
  for (const std::vector<int>& hosts : shapes) Try(static_cast<int>(hosts.size()), 13, hosts, true);
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
    for (const auto& one : marks) one->Begin({0, 8});
  }
  ~FirstHost() {
    for (auto& transport : transports) transport->Close(0);
  }
  void Make(int member, const Members& all, const Topology& topology) {
    const auto m = static_cast<size_t>(member);
    EXPECT_TRUE(Watermarks::Make(windows[m].get(), transports[m].get(), 0, all, topology,
                                 Position(member), &marks[m])
                    .ok());
  }
  // Of the flags of a member: its mark, or, behind that, what the first publishes of all.
  Flag& FlagOf(int member, size_t line) {
    return *reinterpret_cast<Flag*>(windows[0]->Span(Position(member), 0) + 64 * line);
  }

  inproc::Fabric fabric{4};
  Waker waker;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Window>> windows;
  std::unique_ptr<Watermarks> marks[2];
};

TEST(Watermarks, AMarkThatCannotBeRightIsNotBelieved) {
  bool moved = false;
  const auto believed = [&](int writer, size_t line, uint64_t word, int reader) {
    FirstHost host;
    Watermarks& marks = *host.marks[reader];
    host.FlagOf(writer, line).store(word);
    marks.Publish(1, NowMicros());
    marks.Look(&moved);
    EXPECT_TRUE(!marks.corrupt().known() || marks.corrupt() == Position(writer));
    return !marks.corrupt().known();
  };
  EXPECT_TRUE(believed(1, 0, 2 * 2, 0));  // of the second batch, which carries data
  EXPECT_TRUE(believed(1, 0, 2 * 2 + 1, 0));
  EXPECT_FALSE(believed(1, 0, 2 * 3, 0));  // nobody is ready for the third before that has run
  EXPECT_FALSE(believed(1, 0, ~uint64_t{0}, 0));
  EXPECT_TRUE(believed(0, 1, 2 * 1, 1));
  EXPECT_FALSE(believed(0, 1, 2 * 2, 1));  // for which this member is not ready itself
  EXPECT_FALSE(believed(0, 0, 2 * 3 + 1, 1));
}

// What comes over a link: two numbers, and the payload of the batch, if that carries one.
TEST(Watermarks, AMarkOverALinkThatCannotBeRightIsNotBelieved) {
  const auto believed = [](size_t payload, uint64_t ready, uint64_t end, size_t bytes) {
    inproc::Fabric fabric(2);
    Waker waker;
    const auto transport = fabric.MakeTransport(0, GlobalRank(0), waker);
    const auto peer = fabric.MakeTransport(0, GlobalRank(1), waker);
    std::unique_ptr<Watermarks> marks;
    EXPECT_TRUE(Watermarks::Make(nullptr, transport.get(), 0, Members::Everybody(2),
                                 Topology::OneHost(2, false), Position(0), &marks)
                    .ok());
    std::vector<std::byte> message(sizeof(Marks) + 64);
    const Marks said{ready, end};
    std::memcpy(message.data(), &said, sizeof said);
    Transfer sent;
    peer->Send(GlobalRank(0), {0, 1, 2}, message.data(), bytes, &sent);
    marks->Begin({payload});
    marks->Publish(1, NowMicros());
    bool moved = false;
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(peer->Progress(&moved).ok());
      EXPECT_TRUE(transport->Progress(&moved).ok());
      marks->Look(&moved);
    }
    const bool corrupt = marks->corrupt().known();
    EXPECT_TRUE(!corrupt || marks->corrupt() == Position(1));
    EXPECT_TRUE(!corrupt || marks->all().ready == 0);
    for (const auto& end_of : {transport.get(), peer.get()}) end_of->Close(0);
    return !corrupt;
  };
  constexpr size_t kBytes = sizeof(Marks);
  EXPECT_TRUE(believed(0, 1, kNoEnd, kBytes));
  EXPECT_TRUE(believed(0, 3, 3, kBytes));
  EXPECT_TRUE(believed(16, 1, kNoEnd, kBytes + 16));
  EXPECT_TRUE(believed(16, 0, 0, kBytes));
  EXPECT_FALSE(believed(0, 1, kNoEnd, 0));
  EXPECT_FALSE(believed(0, 1, kNoEnd, kBytes - 1));
  EXPECT_FALSE(believed(0, 1, kNoEnd, kBytes + 8));
  EXPECT_FALSE(believed(0, Batches::kMostAhead + 1, kNoEnd, kBytes));
  EXPECT_FALSE(believed(16, 1, kNoEnd, kBytes));
  EXPECT_FALSE(believed(16, 1, kNoEnd, kBytes + 8));
  EXPECT_FALSE(believed(16, 2, kNoEnd, kBytes + 16));
}

}  // namespace
}  // namespace hvd
