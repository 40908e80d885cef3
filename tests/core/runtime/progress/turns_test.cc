// Whom threads that wait while another one drives are woken for.

#include "runtime/progress/turns.h"

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace hvd::test {
namespace {

constexpr int kThreads = 16;
constexpr int64_t kLongUs = 30'000'000;

// How many threads of this process sleep.
int Asleep() {
  int asleep = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stat(task.path() / "stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    if (state == "S") ++asleep;
  }
  return asleep;
}

// Threads of which each waits once, for an operation of its own.
class Waiters {
 public:
  explicit Waiters(Turns* turns) : turns_(turns) {
    for (int i = 0; i < kThreads; ++i) handles_.emplace_back(Entry());
    for (Handle& handle : handles_) {
      threads_.emplace_back([this, &handle] {
        ++waiting_;
        (void)turns_->Await(0, handle, kLongUs);
        ++awake_;
      });
    }
    while (waiting_ < kThreads || Asleep() < kThreads) std::this_thread::yield();
  }
  ~Waiters() {
    turns_->WakeAll();
    for (std::thread& thread : threads_) thread.join();
  }

  Handle& handle(size_t i) { return handles_[i]; }
  // After whoever was woken had the time to wake.
  int Awake(int at_least) {
    while (awake_ < at_least) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return awake_;
  }

 private:
  Turns* turns_;
  std::deque<Handle> handles_;
  std::vector<std::thread> threads_;
  std::atomic<int> waiting_{0};
  std::atomic<int> awake_{0};
};

TEST(Turns, WakeThoseWhoseOperationsHaveEnded) {
  Turns turns;
  Waiters waiters(&turns);
  waiters.handle(3).done.store(true);
  waiters.handle(7).done.store(true);
  turns.WakeDone();
  EXPECT_EQ(waiters.Awake(2), 2);
}

TEST(Turns, GoToOneThreadEach) {
  Turns turns;
  Waiters waiters(&turns);
  for (int passed = 1; passed <= 3; ++passed) {
    turns.Pass();
    EXPECT_EQ(waiters.Awake(passed), passed);
  }
}

// Whoever found another one driving does not sleep when that one has left since.
TEST(Turns, AreNotMissed) {
  Turns turns;
  const Handle handle{Entry()};
  const uint32_t number = turns.number();
  turns.Pass();
  EXPECT_TRUE(turns.Await(number, handle, kLongUs) == FutexWait::kWoken);
  EXPECT_TRUE(turns.Await(turns.number(), handle, 1000) == FutexWait::kTimeout);
}

// It may leave at any moment while the other one lies down.
TEST(Turns, AreNotMissedWhileAThreadLiesDown) {
  constexpr uint32_t kRounds = 50'000;
  Turns turns;
  std::atomic<uint32_t> lies_down{0};
  std::thread driver([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (lies_down.load() < round) {
      }
      for (volatile uint32_t pause = 0; pause < round % 64;) pause = pause + 1;
      turns.Pass();
    }
  });
  const Handle handle{Entry()};
  uint32_t missed = 0;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const uint32_t number = turns.number();
    lies_down.store(round);
    // Far longer than a busy machine may keep the driver from its processor.
    if (missed == 0 && turns.Await(number, handle, kLongUs) == FutexWait::kTimeout) missed = round;
    while (turns.number() < round) {
    }
  }
  driver.join();
  EXPECT_EQ(missed, 0U);
}

// A driver ends operations one after the other while their waiters come.
TEST(Turns, WakeEverybodyInTheEnd) {
  for (int round = 0; round < 200; ++round) {
    Turns turns;
    std::deque<Handle> handles;
    for (int i = 0; i < 4; ++i) handles.emplace_back(Entry());
    std::vector<std::thread> threads;
    for (Handle& handle : handles) {
      threads.emplace_back([&turns, &handle] {
        while (!handle.done.load()) {
          EXPECT_TRUE(turns.Await(turns.number(), handle, kLongUs) == FutexWait::kWoken);
        }
      });
    }
    for (Handle& handle : handles) {
      handle.done.store(true, std::memory_order_release);
      turns.WakeDone();
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace hvd::test
