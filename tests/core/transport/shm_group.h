#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/descriptor.h"
#include "transport/shm/arena.h"
#include "transport/shm/share_tree.h"
#include "transport/shm/window.h"
#include "transport/transport_sockets.h"
#include "transport/window_conformance.h"

namespace hvd::test {

// A socket pair between every two members, whose global ranks are 10, 20, 30, ...
class ShmGroup : public WindowGroup {
 public:
  explicit ShmGroup(int size, size_t bytes = kWindowBytes) : bytes_(bytes), sockets_(size) {
    for (int a = 0; a < size; ++a) {
      members_.push_back(10 * (a + 1));
      sockets_[a].resize(size);
    }
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < a; ++b) Connect(&sockets_[a][b], &sockets_[b][a]);
    }
  }

  std::unique_ptr<Window> Make(int rank, const Waker& waker) override {
    std::unique_ptr<Window> window;
    const Status status = Try(rank, 5, waker, &window);
    EXPECT_EQ(status.message(), "");
    return window;
  }

  Status Try(int rank, uint64_t generation, const Waker& waker, std::unique_ptr<Window>* window) {
    std::unique_ptr<shm::ShareTree> tree;
    HVD_RETURN_IF_ERROR(Plant(rank, generation, waker, &tree));
    return shm::ShmWindow::Make({3, Members(members_), bytes_, NowMicros() + patience_us},
                                tree.get(), window);
  }

  Status Plant(int rank, uint64_t generation, const Waker& waker,
               std::unique_ptr<shm::ShareTree>* tree) {
    std::vector<int> fds;
    for (const Descriptor& socket : sockets_[rank]) fds.push_back(socket.get());
    return shm::ShareTree::Make(generation, Members(members_), GlobalRank(members_[rank]), fds,
                                waker, NowMicros() + patience_us, tree);
  }

  int64_t patience_us = 30000000;

  const std::vector<int>& members() const { return members_; }
  Descriptor& Socket(int rank, int peer) { return sockets_[rank][peer]; }

 private:
  static void Connect(Descriptor* a, Descriptor* b) {
    const auto [of_a, of_b] = UnixPair();
    *a = Descriptor(of_a);
    *b = Descriptor(of_b);
  }

 protected:
  const size_t bytes_;

 private:
  std::vector<int> members_;
  std::vector<std::vector<Descriptor>> sockets_;
};

// Their windows lie in an arena; the first member makes the memory. `at_once`: what is reserved.
class ArenaGroup : public ShmGroup {
 public:
  explicit ArenaGroup(int size, size_t bytes = kWindowBytes, size_t at_once = 0)
      : ShmGroup(size, bytes), at_once_(at_once), meets_(size) {}

  std::unique_ptr<Window> Make(int rank, const Waker& waker) override {
    std::unique_ptr<shm::ShareTree> tree;
    std::unique_ptr<shm::Arena> arena;
    std::unique_ptr<Window> window;
    EXPECT_EQ(Plant(rank, 5, waker, &tree).message(), "");
    EXPECT_EQ(shm::Arena::Make(tree.get(), NowMicros() + patience_us, &arena).message(), "");
    const shm::WindowOptions options{3, Members(members()), bytes_, 0, at_once_};
    if (rank == 0) {
      EXPECT_EQ(shm::ShmWindow::MakeIn(arena.get(), options, *tree, &place_).message(), "");
    }
    Meet();
    EXPECT_EQ(shm::ShmWindow::Open(*arena, options, *tree, place_, &window).message(), "");
    Meet();
    return window;
  }

 private:
  void Meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = here_++ / meets_;
    all_here_.notify_all();
    all_here_.wait(lock, [&] { return here_ >= (round + 1) * meets_; });
  }

  const size_t at_once_;
  const int meets_;  // so many members
  shm::Place place_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0;
};

}  // namespace hvd::test
