#pragma once

// Ranks as threads that run collectives: for tests of everything above the transports.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "backend/host/host_backend.h"
#include "backend/library/library.h"
#include "backend/nccl/gpu_runtime.h"
#include "base/link.h"
#include "base/waker.h"
#include "transport/descriptor.h"
#include "transport/inproc/fabric.h"
#include "transport/transport_ranks.h"

namespace hvd::test {

// kHosts: several hosts, each with a window in process, and links in process between all. kGloo:
// the module with the real library, above a window in process. kNccl: tensors on GPUs, with the
// stand-ins of tests/fake_gpu.
enum class Medium { kInprocWindow, kInprocTransport, kShmWindow, kTcp, kHosts, kGloo, kNccl };
inline bool IsLinks(Medium medium) {
  return medium != Medium::kInprocWindow && medium != Medium::kShmWindow;
}
// Whether a test of many cases runs with so many ranks: for each, the stand-ins for GPUs have
// three threads more.
inline bool IsTried(Medium medium, int ranks) { return medium != Medium::kNccl || ranks <= 4; }
// Those of this build: Gloo is optional.
const std::vector<Medium>& AllMedia();
const char* Name(Medium medium);

// What the ranks of a test have in common; made before they start.
class World {
 public:
  // `hosts`: by rank, for kHosts; without, hosts of unequal size. `board`: where memory is shared.
  World(Medium medium, int size, std::vector<int> hosts = {}, BoardShape board = {});

  Medium medium() const { return medium_; }
  int size() const { return size_; }
  std::vector<int> Everybody() const;

 private:
  friend class Rank;
  void LeaveTogether();

  const Medium medium_;
  const int size_;
  const std::vector<int> hosts_;  // by rank
  const BoardShape board_;
  inproc::Fabric fabric_;
  std::mutex mutex_;  // guards left_
  std::condition_variable leaves_;
  int left_ = 0;                                  // ranks, over all rounds of them
  std::vector<std::vector<Descriptor>> sockets_;  // [rank][peer], for shared memory
  std::vector<std::vector<Link>> links_;          // [rank], for TCP
};

// Gives `spec` the sizes of an alltoall as `rank` of `ranks` knows them; `matrices` have bytes, by
// piece, at [sender * ranks + receiver].
void SetMatrices(const std::vector<std::vector<int64_t>>& matrices, int rank, int ranks,
                 CollectiveSpec* spec);

using Machines = std::vector<std::unique_ptr<StepMachine>>;

// One rank, used by one thread.
class Rank {
 public:
  Rank(World* world, int rank);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  // Of kNccl, once it has joined a set.
  nccl::GpuRuntime& gpu() const { return *gpu_; }
  // Makes this rank's backend for a set; collective over `members`. The backend dies with the rank.
  Status Join(uint32_t set, const std::vector<int>& members, Backend** backend);

  // Advances every machine until all are done, as the engine does. With a seed: in random order, a
  // random number of steps at a time, with pauses.
  Status Drive(const Machines& machines, uint32_t seed = 0);
  Status Run(Backend* backend, CollectiveSpec spec);

 private:
  Status JoinGloo(uint32_t set, const std::vector<int>& members, Backend** backend);
  Status JoinNccl(uint32_t set, const Members& members, Backend** backend);
  Status JoinHosts(uint32_t set, const Members& members, Backend** backend);
  Status Sleep(const Machines& machines, std::vector<bool>* done);
  static int MillisecondsUntil(const Machines& machines, const std::vector<bool>& done);
  Status Pass(const Machines& machines, std::vector<bool>* done, std::mt19937* random, bool* moved);

  World* const world_;
  const int rank_;
  Waker waker_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Library> library_;
  std::shared_ptr<nccl::GpuRuntime> gpu_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace hvd::test
