#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "digest/crc32c.h"
#include "transport/descriptor.h"
#include "transport/inproc/fabric.h"
#include "transport/shm_group.h"
#include "transport/transport_ranks.h"
#include "transport/window_conformance.h"

namespace hvd::test {
namespace {

class InprocGroup : public WindowGroup {
 public:
  explicit InprocGroup(int size) : fabric_(size), members_(Ranks(size)) {}
  std::unique_ptr<Window> Make(int rank, const Waker& waker) override {
    return fabric_.MakeWindow(7, Members(members_), GlobalRank(rank), waker);
  }

 private:
  static std::vector<int> Ranks(int size) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    return ranks;
  }
  inproc::Fabric fabric_;
  std::vector<int> members_;
};

const MakeWindowGroup kInproc = [](int size, size_t) {
  return std::make_unique<InprocGroup>(size);
};
const MakeWindowGroup kShm = [](int size, size_t bytes) {
  return std::make_unique<ShmGroup>(size, bytes);
};

WINDOW_CONFORMANCE(InprocWindow, kInproc)
WINDOW_CONFORMANCE(ShmWindow, kShm)

bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// One member makes a window; what the other does instead, from the beginning, is `impostor`.
Status AgainstImpostor(int honest, const std::function<void(ShmGroup&, int socket)>& impostor) {
  ShmGroup group(2);
  const int other = 1 - honest;
  std::thread thread([&] { impostor(group, group.Socket(other, honest).get()); });
  const Waker waker;
  std::unique_ptr<Window> window;
  const Status status = group.Try(honest, 5, waker, &window);
  thread.join();
  EXPECT_TRUE(window == nullptr);
  return status;
}

shm::Deadline Soon() { return NowMicros() + 5000000; }

TEST(ShmWindow, ClosedPeerIsNamed) {
  for (const int honest : {0, 1}) {
    const int other = 1 - honest;
    const Status status =
        AgainstImpostor(honest, [&](ShmGroup& group, int) { group.Socket(other, honest).Reset(); });
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(Mentions(status, "rank " + std::to_string(10 * (other + 1))));
  }
}

TEST(ShmWindow, OtherGenerationIsRefused) {
  Status theirs;
  const Status status = AgainstImpostor(0, [&](ShmGroup& group, int) {
    const Waker waker;
    std::unique_ptr<Window> window;
    theirs = group.Try(1, 6, waker, &window);
  });
  EXPECT_TRUE(Mentions(status, "rank 20"));
  EXPECT_TRUE(Mentions(theirs, "rank 10"));
}

// A rank that says nothing holds up the others no longer than they were given, and all of them name
// it, wherever in the tree it is.
void WithoutOne(int size, int silent) {
  ShmGroup group(size);
  group.patience_us =
      6000000;  // a level gets some 100 ms, which a busy machine may take from a thread
  const int64_t start = NowMicros();
  RunRanks(size, [&](int rank) {
    if (rank == silent) return;
    const Waker waker;
    std::unique_ptr<Window> window;
    const Status status = group.Try(rank, 5, waker, &window);
    EXPECT_TRUE(Mentions(status, "rank " + std::to_string(10 * (silent + 1))));
  });
  EXPECT_TRUE(NowMicros() - start < group.patience_us + 1500000);
}

TEST(ShmWindow, OneDeadlineHoldsAndTheSilentRankIsNamed) {
  const std::vector<int> silent = {0, 1, 4, 6, 7};
  RunRanks(static_cast<int>(silent.size()), [&](int i) { WithoutOne(8, silent[i]); });
}

// In each stage whoever is next to the missing rank gives up before those who would blame another
// for it, and nobody waits beyond the deadline or loses more than a quarter of it.
TEST(ShmWindow, StagesAndLevelsGiveUpInOrder) {
  using shm::GiveUpAt;
  using shm::Stage;
  for (const int size : {2, 3, 8, 9, 256, 1000}) {
    for (int position = 1; position < size; ++position) {
      const Tree tree(position, size);
      const Tree parent(tree.parent(), size);
      const auto at = [](Stage stage, const Tree& where) {
        return GiveUpAt(stage, where, 1000, 401000);
      };
      for (const Stage stage : {Stage::kWakersUp, Stage::kVerdictUp}) {
        EXPECT_TRUE(at(stage, tree) < at(stage, parent));
      }
      for (const Stage stage : {Stage::kDown, Stage::kVerdictDown}) {
        EXPECT_TRUE(at(stage, tree) > at(stage, parent));
      }
      EXPECT_TRUE(at(Stage::kWakersUp, tree) >= 301000 &&
                  at(Stage::kWakersUp, parent) < at(Stage::kDown, parent));
      EXPECT_TRUE(at(Stage::kDown, tree) < at(Stage::kVerdictUp, tree));
      EXPECT_TRUE(at(Stage::kVerdictUp, parent) < at(Stage::kVerdictDown, parent));
      EXPECT_TRUE(at(Stage::kVerdictDown, tree) <= 401000);
    }
  }
}

// A rank that came too late to one window, and so spoiled it for all, is in step again for the
// next.
TEST(ShmWindow, AfterALateRankTheNextWindowIsShared) {
  constexpr int kSize = 8;
  for (const int late : {0, 1, 4, 7}) {
    ShmGroup group(kSize);
    const Members members(group.members());
    RunRanks(kSize, [&](int rank) {
      const Waker waker;
      std::unique_ptr<shm::ShareTree> tree;
      ASSERT_OK(group.Plant(rank, 5, waker, &tree));
      std::unique_ptr<Window> window;
      if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(600));
      const shm::Deadline deadline = rank == late ? Soon() : NowMicros() + 300000;
      const Status status = shm::ShmWindow::Make({3, members, 100, deadline}, tree.get(), &window);
      EXPECT_TRUE(Mentions(status, "rank "));
      ASSERT_OK(shm::ShmWindow::Make({4, members, 100, Soon() + 20000000}, tree.get(), &window));
    });
  }
}

// What an impostor at the root announces once it has exchanged wakers, changed by `spoil`, must be
// refused and the reason must hold `text`.
void Refused(const std::string& text,
             const std::function<void(shm::Message*, Descriptor*)>& spoil) {
  const Status status = AgainstImpostor(1, [&](ShmGroup& group, int socket) {
    const Waker waker;
    std::unique_ptr<shm::ShareTree> tree;
    ASSERT_OK(group.Plant(0, 5, waker, &tree));
    shm::Message message;
    const uint32_t digest = Crc32c(group.members().data(), 2 * sizeof(int));
    message.identity = {5, kWindowBytes, 3, 2, digest, 0, {}};
    Descriptor memfd;
    ASSERT_OK(shm::SharedMemory::Create(&message.identity, &memfd));
    spoil(&message, &memfd);
    std::vector<int> descriptors;
    if (memfd.valid()) descriptors.push_back(memfd.get());
    ASSERT_OK(shm::Send(socket, message, descriptors, Soon()));
    message.kind = shm::Message::kVerdict;
    ASSERT_OK(shm::Send(socket, message, {}, Soon()));
  });
  if (!Mentions(status, text)) check::Fail(__FILE__, __LINE__, text + " in: " + status.message());
}

TEST(ShmWindow, ForgedSegmentsAreRefused) {
  Refused("not the one",
          [](shm::Message* message, Descriptor*) { message->identity.nonce[3] ^= 1; });
  Refused("sent 0 descriptors", [](shm::Message*, Descriptor* memfd) { memfd->Reset(); });
  Refused("another protocol", [](shm::Message* message, Descriptor*) { message->magic ^= 1; });
  Refused("another segment",
          [](shm::Message* message, Descriptor*) { message->identity.digest ^= 1; });
  Refused("another size", [](shm::Message*, Descriptor* memfd) {
    shm::Identity other{5, 9000, 3, 2, 0, 0, {}};
    ASSERT_OK(shm::SharedMemory::Create(&other, memfd));
  });
  Refused("not sealed", [](shm::Message*, Descriptor* memfd) {
    *memfd = Descriptor(memfd_create("unsealed", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(memfd->get(), PageBytes() + 2 * (PageBytes() + kWindowBytes)), 0);
  });
  Refused("rank 10 could not share", [](shm::Message* message, Descriptor*) {
    message->outcome = shm::Outcome::kCannot;
    message->failed_rank = 10;
  });
}

TEST(ShmWindow, RandomBytesAreRefused) {
  uint32_t state = 12345;
  for (int round = 0; round < 200; ++round) {
    const int honest = round % 2;
    const Status status = AgainstImpostor(honest, [&](ShmGroup& group, int socket) {
      std::vector<uint8_t> garbage(1 + (state = state * 1664525 + 1013904223) % 300);
      for (uint8_t& byte : garbage) byte = (state = state * 1664525 + 1013904223) >> 24;
      EXPECT_EQ(send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(garbage.size()));
      group.Socket(1 - honest, honest).Reset();
    });
    EXPECT_EQ(status.code(), Code::kAborted);
  }
}

// Sets of any ranks, the root among them or not, are made and used while the others pass the memory
// on.
TEST(ShmWindow, AnySetOfTheTreeSharesMemory) {
  constexpr int kSize = 9;
  const std::vector<std::vector<int>> sets = {{10, 90}, {30, 40, 70}, {80}, {60, 70, 80, 90}};
  ShmGroup group(kSize);
  const int descriptors = OpenDescriptors();
  RunRanks(kSize, [&](int rank) {
    const Waker waker;
    std::unique_ptr<shm::ShareTree> tree;
    ASSERT_OK(group.Plant(rank, 5, waker, &tree));
    for (uint32_t set = 0; set < sets.size(); ++set) {
      std::unique_ptr<Window> window;
      ASSERT_OK(shm::ShmWindow::Make({set, Members(sets[set]), 4096, Soon() + 20000000}, tree.get(),
                                     &window));
      const bool is_member =
          std::count(sets[set].begin(), sets[set].end(), group.members()[rank]) != 0;
      EXPECT_EQ(window != nullptr, is_member);
      SegmentId id;
      if (!is_member || !EXPECT_TRUE(window->Allocate(64, &id).ok())) continue;
      EXPECT_EQ(sets[set][window->position().value()], group.members()[rank]);
      window->Post(FlagAt(window->Span(window->position(), id), 0), 7 + set);
      for (int peer = 0; peer < window->size(); ++peer)
        AwaitFlag(FlagAt(window->Span(Position(peer), id), 0), 7 + set);
    }
  });
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(ShmWindow, WhatIsAllocatedEndsWithTheWindow) {
  OnWindows(kShm, 2, [](Window& window, const Waker&) {
    SegmentId id;
    ASSERT_OK(window.Allocate(kWindowBytes - PageBytes(), &id));
    EXPECT_EQ(window.Allocate(PageBytes() + 1, &id).code(), Code::kInternal);
    ASSERT_OK(window.Allocate(1, &id));
    EXPECT_EQ(window.Allocate(1, &id).code(), Code::kInternal);
    EXPECT_EQ(window.Allocate(~size_t{0}, &id).code(), Code::kInternal);
  });
}

TEST(ShmWindow, TooMuchMemoryIsAClearError) {
  // Should the check be missing, this limit saves the machine from the OOM killer. It ends nobody.
  const auto handler = signal(SIGXFSZ, SIG_DFL);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit safe{std::min<rlim_t>(64 << 20, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &safe), 0);
  ShmGroup group(2);
  RunRanks(2, [&](int rank) {
    const Waker waker;
    std::unique_ptr<shm::ShareTree> tree;
    ASSERT_OK(group.Plant(rank, 5, waker, &tree));
    std::unique_ptr<Window> window;
    const Status status =
        shm::ShmWindow::Make({3, {10, 20}, size_t{1} << 59, Soon()}, tree.get(), &window);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TRUE(Mentions(status, "2 ranks need 576460752303423488 bytes each"));
    // All members failed alike, so they go on alike.
    ASSERT_OK(shm::ShmWindow::Make({4, {10, 20}, 100, Soon()}, tree.get(), &window));
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

// Real processes: the child sees the parent's bytes, is killed in the middle of its work, and the
// parent goes on. A memfd lives as long as somebody maps it or holds its descriptor, and nobody
// does afterwards.
TEST(ShmWindow, KilledProcessLeavesNothing) {
  constexpr size_t kBytes = 64 << 20;
  const int descriptors = OpenDescriptors();
  {
    ShmGroup group(2, kBytes);
    const pid_t child = fork();
    const int rank = child == 0 ? 1 : 0;
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Waker waker;
    const auto window = group.Make(rank, waker);
    SegmentId id;
    if (window == nullptr || !window->Allocate(kBytes, &id).ok()) {
      if (child == 0) _exit(1);
      return check::Fail(__FILE__, __LINE__, "a window between processes");
    }
    if (child == 0) {
      AwaitFlag(FlagAt(window->Span(Position(0), id), 0), 41);
      window->Post(FlagAt(window->Span(Position(1), id), 0), 42);
      while (true) pause();
    }
    window->Post(FlagAt(window->Span(Position(0), id), 0), 41);
    AwaitFlag(FlagAt(window->Span(Position(1), id), 0), 42);
    EXPECT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    window->Span(Position(1), id)[kBytes - 1] =
        std::byte{1};  // the orphan's memory is still safe to touch
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(SharedMappings(), 0);
}

}  // namespace
}  // namespace hvd::test
