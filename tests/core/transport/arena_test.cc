#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "transport/shm_group.h"
#include "transport/window_conformance.h"

namespace hvd::test {
namespace {

const MakeWindowGroup kArena = [](int size, size_t bytes) {
  return std::make_unique<ArenaGroup>(size, bytes);
};

WINDOW_CONFORMANCE(ArenaWindow, kArena)

// One rank alone, and a place in its arena.
class LoneArena {
 public:
  explicit LoneArena(size_t bytes) : group_(1) {
    options.members = Members(group_.members());
    options.bytes = bytes;
    options.at_once = 0;
    EXPECT_EQ(group_.Plant(0, 5, waker_, &tree_).message(), "");
    EXPECT_EQ(shm::Arena::Make(tree_.get(), NowMicros() + 30'000'000, &arena_).message(), "");
  }
  Status Make(shm::Place* place) {
    return shm::ShmWindow::MakeIn(arena_.get(), options, *tree_, place);
  }
  Status Open(const shm::Place& place, std::unique_ptr<Window>* window) {
    return shm::ShmWindow::Open(*arena_, options, *tree_, place, window);
  }
  void Close(const shm::Place& place) { arena_->Close(place); }

  shm::WindowOptions options;

 private:
  ShmGroup group_;
  Waker waker_;
  std::unique_ptr<shm::ShareTree> tree_;
  std::unique_ptr<shm::Arena> arena_;
};

TEST(ArenaWindow, OpensNothingButWhatItIsMeantFor) {
  LoneArena arena(4096);
  shm::Place place;
  ASSERT_TRUE(arena.Make(&place).ok());
  const auto refused = [&](const std::function<void(shm::Place*)>& change) {
    shm::Place other = place;
    change(&other);
    std::unique_ptr<Window> window;
    const Code code = arena.Open(other, &window).code();
    return (code == Code::kAborted || code == Code::kTimeout) && window == nullptr;
  };
  EXPECT_TRUE(refused([](shm::Place* other) { other->offset += 1; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->offset += PageBytes(); }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->offset = ~uint64_t{0} - 4095; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->identity.bytes *= 2; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->identity.members += 1; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->identity.set += 1; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->identity.generation += 1; }));
  EXPECT_TRUE(refused([](shm::Place* other) { other->identity.nonce[3] ^= 1; }));
  std::unique_ptr<Window> window;
  EXPECT_TRUE(arena.Open(place, &window).ok());
}

TEST(ArenaWindow, LeavesItsPlaceToTheNext) {
  LoneArena arena(64 << 10);
  arena.options.at_once = 64 << 10;
  shm::Place first;
  shm::Place second;
  shm::Place third;
  std::unique_ptr<Window> window;
  ASSERT_TRUE(arena.Make(&first).ok());
  ASSERT_TRUE(arena.Make(&second).ok());  // nobody has come to the first yet
  EXPECT_TRUE(first.offset != second.offset);
  ASSERT_TRUE(arena.Open(first, &window).ok());
  SegmentId id = 0;
  ASSERT_TRUE(window->Allocate(64 << 10, &id).ok());
  std::memset(window->Span(Position(0), id), 7, 64 << 10);
  ASSERT_TRUE(arena.Make(&third).ok());
  EXPECT_TRUE(first.offset != third.offset);
  window.reset();
  ASSERT_TRUE(arena.Make(&third).ok());
  EXPECT_EQ(first.offset, third.offset);
  EXPECT_EQ(arena.Open(first, &window).code(), Code::kTimeout);
  ASSERT_TRUE(arena.Open(third, &window).ok());
  ASSERT_TRUE(window->Allocate(64 << 10, &id).ok());
  const std::byte* const memory = window->Span(Position(0), id);
  EXPECT_TRUE(
      std::all_of(memory, memory + (64 << 10), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(ArenaWindow, IsOpenedByNobodyOnceItsPlaceIsClosed) {
  LoneArena arena(4096);
  shm::Place place;
  std::unique_ptr<Window> window;
  ASSERT_TRUE(arena.Make(&place).ok());
  arena.Close(place);
  EXPECT_EQ(arena.Open(place, &window).code(), Code::kTimeout);
  shm::Place next;
  ASSERT_TRUE(arena.Make(&next).ok());
  EXPECT_EQ(place.offset, next.offset);
  ASSERT_TRUE(arena.Open(next, &window).ok());
  arena.Close(next);  // who is there may stay
  ASSERT_TRUE(arena.Make(&place).ok());
  EXPECT_TRUE(place.offset != next.offset);
}

class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(ArenaWindow, FitsTheLimitOfFiles) {
  {
    const FileLimit limit(64 << 20);
    LoneArena arena(40 << 20);
    shm::Place place;
    EXPECT_TRUE(arena.Make(&place).ok());
    EXPECT_TRUE(arena.Make(&place).code() == Code::kUnavailable);
  }
  const FileLimit limit(1 << 20);
  ShmGroup group(1);
  const Waker waker;
  std::unique_ptr<shm::ShareTree> tree;
  std::unique_ptr<shm::Arena> arena;
  ASSERT_TRUE(group.Plant(0, 5, waker, &tree).ok());
  const Status status = shm::Arena::Make(tree.get(), NowMicros() + 30'000'000, &arena);
  EXPECT_TRUE(status.message().find("ulimit -f") != std::string::npos);
}

size_t PagesPresent(std::byte* memory, size_t bytes) {
  std::vector<unsigned char> present(bytes / PageBytes());
  EXPECT_EQ(mincore(memory, bytes, present.data()), 0);
  return static_cast<size_t>(
      std::count_if(present.begin(), present.end(), [](unsigned char page) { return page & 1; }));
}

TEST(ArenaWindow, HasMemoryOnceItIsPopulated) {
  constexpr size_t kBytes = 1 << 20;
  LoneArena arena(2 * kBytes);
  shm::Place place;
  ASSERT_TRUE(arena.Make(&place).ok());
  std::unique_ptr<Window> window;
  ASSERT_TRUE(arena.Open(place, &window).ok());
  SegmentId first = 0;
  SegmentId second = 0;
  ASSERT_TRUE(window->Allocate(kBytes, &first).ok());
  ASSERT_TRUE(window->Allocate(kBytes, &second).ok());
  std::byte* const memory = window->Span(Position(0), first);
  EXPECT_TRUE(PagesPresent(memory, kBytes) <= 1);  // the least that is reserved
  ASSERT_TRUE(window->Populate(first).ok());
  EXPECT_EQ(PagesPresent(memory, kBytes), kBytes / PageBytes());
  EXPECT_EQ(PagesPresent(window->Span(Position(0), second), kBytes), size_t{0});
}

}  // namespace
}  // namespace hvd::test
