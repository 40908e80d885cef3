#include "transport/shm/share_tree.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "transport/shm/window.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int64_t kPatienceUs = 30000000;

using Sockets = std::vector<int>;  // by the rank at the other end

// One process for each rank, as limits of descriptors are those of processes. `be` says whether all
// was as it should be.
void RunProcesses(int ranks, const std::function<bool(int rank, const Sockets& sockets)>& be) {
  std::vector<Sockets> sockets(ranks, Sockets(ranks, -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < a; ++b) std::tie(sockets[a][b], sockets[b][a]) = UnixPair();
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    for (int other = 0; other < ranks; ++other) {
      for (const int fd : sockets[other]) {
        if (other != rank && fd >= 0) close(fd);
      }
    }
    _exit(be(rank, sockets[rank]) ? 0 : 1);
  }
  for (const Sockets& row : sockets) {
    for (const int fd : row) close(fd);
  }
  int status = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(wait(&status) > 0);
    EXPECT_EQ(status, 0);
  }
}

Members Everybody(const Sockets& sockets) {
  std::vector<int> ranks(sockets.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return Members(ranks);
}

Status Plant(int rank, const Sockets& sockets, const Waker& waker,
             std::unique_ptr<shm::ShareTree>* tree) {
  return shm::ShareTree::Make(1, Everybody(sockets), GlobalRank(rank), sockets, waker,
                              NowMicros() + kPatienceUs, tree);
}

Status Share(uint32_t set, const Sockets& sockets, shm::ShareTree* tree) {
  std::unique_ptr<Window> window;
  return shm::ShmWindow::Make({set, Everybody(sockets), 100, NowMicros() + kPatienceUs}, tree,
                              &window);
}

bool IsOk(int rank, const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", rank, status.message().c_str());
  return status.ok();
}

// Descriptors that are under way count for all processes of a user together, against one process's
// limit of open files. Root is exempt, so the ranks are processes of somebody else.
TEST(ShareTree, ManyRanksNeedFewDescriptorsUnderWay) {
  constexpr int kRanks = 40;
  constexpr rlim_t kOpenFiles = 128;  // less than the pairs of ranks, let alone twice that
  constexpr uid_t kNobody = 65534;
  RunProcesses(kRanks, [](int rank, const Sockets& sockets) {
    if (getuid() == 0 && setuid(kNobody) != 0) return false;
    const rlimit limit{kOpenFiles, kOpenFiles};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const Waker waker;
    std::unique_ptr<shm::ShareTree> tree;
    return IsOk(rank, Plant(rank, sockets, waker, &tree)) &&
           IsOk(rank, Share(0, sockets, tree.get()));
  });
}

// Each rank in turn. It says itself what it lacks, the others that it was this one; and all go on.
TEST(ShareTree, ARankWithoutDescriptorsIsNamed) {
  constexpr int kRanks = 5;
  RunProcesses(kRanks, [](int rank, const Sockets& sockets) {
    const Waker waker;
    std::unique_ptr<shm::ShareTree> tree;
    bool all_well = IsOk(rank, Plant(rank, sockets, waker, &tree));
    uint32_t set = 0;
    for (int poor = 0; all_well && poor < kRanks; ++poor) {
      rlimit before{};
      getrlimit(RLIMIT_NOFILE, &before);
      const rlimit none{1, before.rlim_max};  // poll refuses more than that
      if (rank == poor) setrlimit(RLIMIT_NOFILE, &none);
      const Status status = Share(set++, sockets, tree.get());
      setrlimit(RLIMIT_NOFILE, &before);
      const std::string expected =
          rank == poor ? "oo many " : Name(GlobalRank(poor)) + " could not";
      all_well = status.message().find(expected) != std::string::npos &&
                 tree->failed_rank() == GlobalRank(poor);
      if (!all_well) std::fprintf(stderr, "rank %d: %s\n", rank, status.message().c_str());
      all_well = all_well && IsOk(rank, Share(set++, sockets, tree.get()));
    }
    return all_well;
  });
}

}  // namespace
}  // namespace hvd::test
