#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <tuple>

#include "base/clock.h"
#include "transport/descriptor.h"
#include "transport/inproc/fabric.h"
#include "transport/shm/available.h"
#include "transport/shm/window.h"
#include "transport_ranks.h"
#include "transport_sockets.h"
#include "window_conformance.h"

namespace hvd::test {
namespace {

class InprocGroup : public WindowGroup {
 public:
  explicit InprocGroup(int size) : fabric_(size), members_(Ranks(size)) {}
  std::unique_ptr<Window> Make(int rank, const Waker& waker) override {
    return fabric_.MakeWindow(7, members_, rank, waker);
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

// A socket pair between every two members, whose global ranks are 10, 20, 30, ...
class ShmGroup : public WindowGroup {
 public:
  explicit ShmGroup(int size) : sockets_(size) {
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
    std::vector<int> fds;
    for (const Descriptor& socket : sockets_[rank]) fds.push_back(socket.get());
    return shm::ShmWindow::Make(generation, 3, members_, members_[rank], fds, waker,
                                NowMicros() + patience_us, window);
  }

  int64_t patience_us = 30000000;

  Descriptor& Socket(int rank, int peer) { return sockets_[rank][peer]; }

 private:
  static void Connect(Descriptor* a, Descriptor* b) {
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *a = Descriptor(pair[0]);
    *b = Descriptor(pair[1]);
  }
  std::vector<int> members_;
  std::vector<std::vector<Descriptor>> sockets_;
};

const MakeWindowGroup kInproc = [](int size) { return std::make_unique<InprocGroup>(size); };
const MakeWindowGroup kShm = [](int size) { return std::make_unique<ShmGroup>(size); };

WINDOW_CONFORMANCE(InprocWindow, kInproc)
WINDOW_CONFORMANCE(ShmWindow, kShm)

bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// Rank 0 makes a window; what rank 1 does instead is `impostor`.
Status AgainstImpostor(const std::function<void(ShmGroup&, int socket)>& impostor) {
  ShmGroup group(2);
  std::thread thread([&] { impostor(group, group.Socket(1, 0).get()); });
  const Waker waker;
  std::unique_ptr<Window> window;
  const Status status = group.Try(0, 5, waker, &window);
  thread.join();
  EXPECT_TRUE(window == nullptr);
  return status;
}

shm::Deadline Soon() { return NowMicros() + 5000000; }

TEST(ShmWindow, ClosedPeerIsNamed) {
  const Status status = AgainstImpostor([](ShmGroup& group, int) { group.Socket(1, 0).Reset(); });
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_TRUE(Mentions(status, "rank 20"));
}

TEST(ShmWindow, OtherGenerationIsRefused) {
  Status theirs;
  const Status status = AgainstImpostor([&](ShmGroup& group, int) {
    const Waker waker;
    std::unique_ptr<Window> window;
    theirs = group.Try(1, 6, waker, &window);
  });
  EXPECT_TRUE(Mentions(status, "rank 20"));
  EXPECT_TRUE(Mentions(theirs, "rank 10"));
}

// Descriptors that are under way count for all processes of a user together, against one process's limit of
// open files. Root is exempt, so the ranks are processes of somebody else.
TEST(ShmWindow, ManyRanksNeedFewDescriptorsUnderWay) {
  constexpr int kRanks = 40;
  constexpr rlim_t kOpenFiles = 128;  // less than the pairs of ranks, let alone twice that
  constexpr uid_t kNobody = 65534;
  std::vector<std::vector<int>> sockets(kRanks, std::vector<int>(kRanks, -1));
  for (int a = 0; a < kRanks; ++a) {
    for (int b = 0; b < a; ++b) std::tie(sockets[a][b], sockets[b][a]) = UnixPair();
  }
  std::vector<int> members(kRanks);
  std::iota(members.begin(), members.end(), 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (fork() != 0) continue;
    for (int other = 0; other < kRanks; ++other) {
      for (const int fd : sockets[other]) {
        if (other != rank && fd >= 0) close(fd);
      }
    }
    if (getuid() == 0 && setuid(kNobody) != 0) _exit(2);
    const rlimit limit{kOpenFiles, kOpenFiles};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(3);
    const Waker waker;
    std::unique_ptr<Window> window;
    Status status =
        shm::ShmWindow::Make(1, 0, members, rank, sockets[rank], waker, Soon() + 25000000, &window);
    SegmentId id;
    if (status.ok()) status = window->Allocate(100, &id);
    if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", rank, status.message().c_str());
    _exit(status.ok() ? 0 : 1);
  }
  for (const auto& row : sockets) {
    for (const int fd : row) close(fd);
  }
  int status = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(wait(&status) > 0);
    EXPECT_EQ(status, 0);
  }
}

// A rank that says nothing holds up the others no longer than they were given, whatever there are to wait
// for.
TEST(ShmWindow, OneDeadlineHoldsForAllPeers) {
  ShmGroup group(6);
  group.patience_us = 500000;
  const int64_t start = NowMicros();
  RunRanks(6, [&](int rank) {
    if (rank == 2 || rank == 4) return;
    const Waker waker;
    std::unique_ptr<Window> window;
    const Status status = group.Try(rank, 5, waker, &window);
    EXPECT_TRUE(Mentions(status, "start timeout"));
  });
  EXPECT_TRUE(NowMicros() - start < 2500000);
}

// What an impostor announces, changed by `spoil`, must be refused and the reason must hold `text`.
void Refused(const std::string& text, const std::function<void(shm::Message*, Descriptor*)>& spoil) {
  const Status status = AgainstImpostor([&](ShmGroup&, int socket) {
    const Waker waker;
    shm::Message message;
    message.identity = {5, 0, 3, 20, 0, 0, {}};
    shm::Segment segment;
    Descriptor memfd;
    ASSERT_OK(shm::Segment::Create(&message.identity, &segment, &memfd));
    spoil(&message, &memfd);
    std::vector<int> descriptors = {memfd.get(), waker.fd()};
    if (!memfd.valid()) descriptors.erase(descriptors.begin());
    ASSERT_OK(shm::Send(socket, message, descriptors, Soon()));
    message.kind = shm::Message::kVerdict;
    ASSERT_OK(shm::Send(socket, message, {}, Soon()));
  });
  EXPECT_TRUE(Mentions(status, "rank 20"));
  if (!Mentions(status, text)) check::Fail(__FILE__, __LINE__, text + " in: " + status.message());
}

TEST(ShmWindow, ForgedSegmentsAreRefused) {
  Refused("not the one", [](shm::Message* message, Descriptor*) { message->identity.nonce[3] ^= 1; });
  Refused("sent 1 descriptors", [](shm::Message*, Descriptor* memfd) { memfd->Reset(); });
  Refused("another protocol", [](shm::Message* message, Descriptor*) { message->magic ^= 1; });
  Refused("another size", [](shm::Message*, Descriptor* memfd) {
    shm::Identity other{5, 9000, 3, 20, 0, 0, {}};
    shm::Segment segment;
    ASSERT_OK(shm::Segment::Create(&other, &segment, memfd));
  });
  Refused("not sealed", [](shm::Message*, Descriptor* memfd) {
    *memfd = Descriptor(memfd_create("unsealed", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(memfd->get(), 2 * kPageBytes), 0);
  });
  Refused("could not reserve", [](shm::Message* message, Descriptor*) { message->failed = 1; });
}

TEST(ShmWindow, RandomBytesAreRefused) {
  uint32_t state = 12345;
  for (int round = 0; round < 200; ++round) {
    const Status status = AgainstImpostor([&](ShmGroup& group, int socket) {
      std::vector<uint8_t> garbage(1 + (state = state * 1664525 + 1013904223) % 300);
      for (uint8_t& byte : garbage) byte = (state = state * 1664525 + 1013904223) >> 24;
      EXPECT_EQ(send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(garbage.size()));
      group.Socket(1, 0).Reset();
    });
    EXPECT_EQ(status.code(), Code::kAborted);
  }
}

TEST(ShmWindow, TooMuchMemoryIsAClearError) {
  // Should the check be missing, this limit saves the machine from the OOM killer.
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit safe{std::min<rlim_t>(64 << 20, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &safe), 0);
  OnWindows(kShm, 2, [](Window& window, const Waker&) {
    SegmentId id;
    const Status status = window.Allocate(size_t{1} << 60, &id);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TRUE(Mentions(status, "2 ranks need 1152921504606846976 bytes each"));
    ASSERT_OK(window.Allocate(100, &id));  // all members failed alike, so they go on alike
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The least of the machine's memory and of every cgroup above the process; droppable cache counts as free.
TEST(ShmWindow, AvailableMemoryHeedsCgroups) {
  std::string root = std::filesystem::temp_directory_path() / "hvd_available_XXXXXX";
  ASSERT_TRUE(mkdtemp(root.data()) != nullptr);
  const std::string group = root + "/sys/fs/cgroup/job/step";
  Write(root + "/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(shm::AvailableMemory(root), 5000u * 1024);
  Write(root + "/proc/self/cgroup", "0::/job/step\n");
  Write(group + "/memory.max", "max\n");
  Write(group + "/../memory.max", "1000000\n");
  Write(group + "/../memory.current", "900000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 100'000u);
  Write(group + "/../memory.stat", "anon 1\ninactive_file 300000\nactive_file 2\n");
  EXPECT_EQ(shm::AvailableMemory(root), 400'000u);
  Write(group + "/memory.max", "2000\n");
  Write(group + "/memory.current", "5000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 0u);
  Write(root + "/proc/self/cgroup", "7:memory:/old\n");
  Write(root + "/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "70000\n");
  EXPECT_EQ(shm::AvailableMemory(root), 70'000u);
  std::filesystem::remove_all(root);
}

// Real processes: the child sees the parent's bytes, is killed in the middle of its work, and the parent
// goes on. A memfd lives as long as somebody maps it or holds its descriptor, and nobody does afterwards.
TEST(ShmWindow, KilledProcessLeavesNothing) {
  constexpr size_t kBytes = 64 << 20;
  const int descriptors = OpenDescriptors();
  {
    ShmGroup group(2);
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
      AwaitFlag(FlagAt(window->Span(0, id), 0), 41);
      window->Post(FlagAt(window->Span(1, id), 0), 42);
      while (true) pause();
    }
    window->Post(FlagAt(window->Span(0, id), 0), 41);
    AwaitFlag(FlagAt(window->Span(1, id), 0), 42);
    EXPECT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    window->Span(1, id)[kBytes - 1] = std::byte{1};  // the orphan's memory is still safe to touch
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(SharedMappings(), 0);
}

}  // namespace
}  // namespace hvd::test
