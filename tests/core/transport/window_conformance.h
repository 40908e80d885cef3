#pragma once

// What every Window must do. A test program gives a Group per implementation and registers the
// suite.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "check.h"
#include "transport/transport_ranks.h"
#include "transport/window.h"

namespace hvd::test {

// The common ground of the ranks of one window, which may allocate `bytes` each.
class WindowGroup {
 public:
  virtual ~WindowGroup() = default;
  virtual std::unique_ptr<Window> Make(int rank, const Waker& waker) = 0;
};
using MakeWindowGroup = std::function<std::unique_ptr<WindowGroup>(int size, size_t bytes)>;
constexpr size_t kWindowBytes = 1 << 20;  // enough for most tests

// Runs one body per rank, each with its window and waker; a thread that ends unmaps only what is
// its own.
using WindowBody = std::function<void(Window&, const Waker&)>;

inline void OnWindows(const MakeWindowGroup& make, int size, const WindowBody& body,
                      size_t bytes = kWindowBytes) {
  const auto group = make(size, bytes);
  RunRanks(size, [&](int rank) {
    const Waker waker;
    const auto window = group->Make(rank, waker);
    ASSERT_TRUE(window != nullptr);
    EXPECT_EQ(window->position(), Position(rank));
    EXPECT_EQ(window->size(), size);
    body(*window, waker);
  });
}

// Flag `index` of a segment, each in a cache line of its own.
inline Flag& FlagAt(std::byte* span, int index) {
  return *reinterpret_cast<Flag*>(span + 64 * index);
}

inline void AwaitFlag(const Flag& flag, uint64_t value) {
  while (Window::Try(flag) < value) std::this_thread::yield();
}

// Waits until every member has come here for the `round`th time, each time with one of its flags.
inline void Meet(Window& window, SegmentId flags, int flag, uint64_t round) {
  window.Post(FlagAt(window.Span(window.position(), flags), flag), round);
  for (int peer = 0; peer < window.size(); ++peer)
    AwaitFlag(FlagAt(window.Span(Position(peer), flags), flag), round);
}

inline std::byte Pattern(int rank, uint64_t round, size_t i) {
  return static_cast<std::byte>(rank * 131 + round * 17 + i * 7 + (i >> 8));
}

// Everything written before a Post is seen by whoever reads the flag; a payload is reused only
// after all have acknowledged it.
inline void Visibility(const MakeWindowGroup& make) {
  constexpr size_t kBytes = 5000;
  for (int size = 1; size <= 4; ++size) {
    OnWindows(make, size, [size](Window& window, const Waker&) {
      SegmentId flags, data;
      ASSERT_OK(window.Allocate(2 * 64, &flags));
      ASSERT_OK(window.Allocate(kBytes, &data));
      const int rank = window.position().value();
      long wrong = 0;
      for (uint64_t round = 1; round <= 200; ++round) {
        for (size_t i = 0; i < kBytes; ++i)
          window.Span(Position(rank), data)[i] = Pattern(rank, round, i);
        window.Post(FlagAt(window.Span(Position(rank), flags), 0), round);
        for (int peer = 0; peer < size; ++peer) {
          AwaitFlag(FlagAt(window.Span(Position(peer), flags), 0), round);
          for (size_t i = 0; i < kBytes; ++i)
            wrong += window.Span(Position(peer), data)[i] != Pattern(peer, round, i);
        }
        window.Post(FlagAt(window.Span(Position(rank), flags), 1), round);
        for (int peer = 0; peer < size; ++peer)
          AwaitFlag(FlagAt(window.Span(Position(peer), flags), 1), round);
      }
      EXPECT_EQ(wrong, 0);
    });
  }
}

// Many flags of one writer keep their own values and only grow.
inline void ManyFlags(const MakeWindowGroup& make) {
  constexpr int kFlags = 256;
  constexpr uint64_t kLast = 200;
  OnWindows(make, 3, [](Window& window, const Waker&) {
    SegmentId flags;
    ASSERT_OK(window.Allocate(64 * kFlags, &flags));
    std::byte* own = window.Span(window.position(), flags);
    for (uint64_t value = 1; value <= kLast; ++value) {
      for (int i = 0; i < kFlags; ++i) window.Post(FlagAt(own, i), value * 1000 + i);
    }
    for (int peer = 0; peer < window.size(); ++peer) {
      uint64_t seen[kFlags] = {};
      bool grows = true;
      for (int i = kFlags - 1; i >= 0; --i) {
        while (seen[i] < kLast * 1000 + i) {
          const uint64_t now = Window::Try(FlagAt(window.Span(Position(peer), flags), i));
          grows = grows && now >= seen[i] && (now == 0 || now % 1000 == static_cast<uint64_t>(i));
          seen[i] = now;
        }
      }
      EXPECT_TRUE(grows);
    }
  });
}

// Segments of any size are zeroed, page aligned, distinct, and stay valid while more are allocated.
inline void Sizes(const MakeWindowGroup& make) {
  const std::vector<size_t> sizes = {1, 63, 4095, 4096, 4097, 100'000, 1 << 20, 8 << 20};
  const auto check = [&](Window& window, const Waker&) {
    const int rank = window.position().value();
    SegmentId flags;
    ASSERT_OK(window.Allocate(64, &flags));
    std::vector<SegmentId> ids(sizes.size());
    for (size_t s = 0; s < sizes.size(); ++s) {
      ASSERT_OK(window.Allocate(sizes[s], &ids[s]));
      std::byte* own = window.Span(Position(rank), ids[s]);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(own) % 4096, 0u);
      EXPECT_TRUE(std::all_of(own, own + sizes[s], [](std::byte b) { return b == std::byte{0}; }));
      own[0] = own[sizes[s] - 1] = Pattern(rank, s + 1, 0);
    }
    window.Post(FlagAt(window.Span(Position(rank), flags), 0), 1);
    for (int peer = 0; peer < window.size(); ++peer) {
      AwaitFlag(FlagAt(window.Span(Position(peer), flags), 0), 1);
      for (size_t s = 0; s < sizes.size(); ++s) {
        const std::byte* span = window.Span(Position(peer), ids[s]);
        EXPECT_TRUE(span[0] == Pattern(peer, s + 1, 0) &&
                    span[sizes[s] - 1] == Pattern(peer, s + 1, 0));
      }
    }
  };
  for (int size = 1; size <= 4; ++size) OnWindows(make, size, check, 16 << 20);
}

// A token goes round; whoever waits for it sleeps. A lost wake-up would end in a time-out.
inline void SleepAndWake(const MakeWindowGroup& make) {
  for (const int size : {2, 3}) {
    OnWindows(make, size, [size](Window& window, const Waker& waker) {
      SegmentId id;
      ASSERT_OK(window.Allocate(64, &id));
      const int rank = window.position().value();
      const Flag& before = FlagAt(window.Span(Position((rank + size - 1) % size), id), 0);
      Flag& own = FlagAt(window.Span(Position(rank), id), 0);
      for (uint64_t round = 1; round <= 10'000; ++round) {
        const uint64_t wanted = rank == 0 ? round - 1 : round;
        while (Window::Try(before) < wanted) {
          window.Arm(true);
          const bool must_sleep = Window::Try(before) < wanted;
          if (must_sleep && !Readable(waker.fd()))
            return check::Fail(__FILE__, __LINE__, "a wake-up");
          window.Arm(false);
          waker.Drain();
        }
        window.Post(own, round);
      }
    });
  }
}

// A Post rings a member that has armed itself, and no other.
inline void RingsOnlySleepers(const MakeWindowGroup& make) {
  OnWindows(make, 3, [](Window& window, const Waker& waker) {
    SegmentId id;
    ASSERT_OK(window.Allocate(3 * 64, &id));
    Flag& own = FlagAt(window.Span(window.position(), id), 0);
    window.Arm(true);
    window.Arm(false);
    Meet(window, id, 1, 1);
    waker.Drain();  // rung there by whoever came before this rank was awake
    Meet(window, id, 1, 2);
    window.Post(own, 1);
    Meet(window, id, 1, 3);
    EXPECT_FALSE(Readable(waker.fd(), 0));
    window.Arm(window.position().value() == 1);
    FlagAt(window.Span(window.position(), id), 2).store(1);  // a Meet that rings nobody
    for (int peer = 0; peer < 3; ++peer) AwaitFlag(FlagAt(window.Span(Position(peer), id), 2), 1);
    if (window.position().value() == 0) window.Post(own, 2);
    FlagAt(window.Span(window.position(), id), 2).store(2);
    for (int peer = 0; peer < 3; ++peer) AwaitFlag(FlagAt(window.Span(Position(peer), id), 2), 2);
    EXPECT_EQ(Readable(waker.fd(), 0), window.position().value() == 1);
  });
}

// Nothing remains of a window that was destroyed.
inline void NoLeak(const MakeWindowGroup& make) {
  const auto cycle = [&] {
    OnWindows(make, 3, [](Window& window, const Waker&) {
      SegmentId first, second;
      ASSERT_OK(window.Allocate(4096, &first));
      ASSERT_OK(window.Allocate(100'000, &second));
    });
  };
  cycle();
  const int descriptors = OpenDescriptors();
  const int mappings = SharedMappings();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(SharedMappings(), mappings);
}

}  // namespace hvd::test

#define WINDOW_CONFORMANCE(name, make)                                  \
  TEST(name, Visibility) { hvd::test::Visibility(make); }               \
  TEST(name, ManyFlags) { hvd::test::ManyFlags(make); }                 \
  TEST(name, Sizes) { hvd::test::Sizes(make); }                         \
  TEST(name, SleepAndWake) { hvd::test::SleepAndWake(make); }           \
  TEST(name, RingsOnlySleepers) { hvd::test::RingsOnlySleepers(make); } \
  TEST(name, NoLeak) { hvd::test::NoLeak(make); }
