#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/status.h"
#include "runtime/engine/link_requests.h"
#include "runtime/operation/handle.h"
#include "settings/config.h"

namespace hvd {

namespace inproc {
class Fabric;
}

enum class Wiring : uint8_t { kShm, kTcp, kInproc };

struct EngineOptions {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  uint64_t generation = 1;
  Wiring wiring = Wiring::kShm;
  // By rank, a number that those of one host have in common; empty: there is one host. The ranks of
  // a host share memory unless the wiring is kTcp.
  std::vector<int> hosts;
  std::vector<std::string> host_names;  // in the order of the hosts' first ranks, for messages
  std::vector<Link> links;              // owned by the engine from Make on, also when it fails
  Link launcher;                        // likewise; fd -1 = none
  // What has no link gets one when it is first used, by way of link_requests(); else that is an
  // error.
  bool links_on_demand = false;
  int64_t start_us = 0;              // after which the start is given up; 0 = the configured time
  inproc::Fabric* fabric = nullptr;  // kInproc
  std::string library;  // file of the module that runs collectives on the host; empty: our own
  std::string address;  // for its connections: where the other ranks reach this one
  // Files of the GPU driver and of NCCL, which all ranks have then; empty: tensors of GPUs are
  // staged through host memory. Loaded when the first such tensor comes.
  std::string gpu_driver;
  std::string gpu_library;
  bool inproc_transport = false;  // kInproc: links instead of windows, also within a host
  // Set 0 is everybody; these are 1, 2, ... Each a list of global ranks, ascending.
  std::vector<std::vector<int>> process_sets;
  Config config;
};

// What the largest file of shared memory of so many ranks of a host has at least.
size_t SharedFileBytes(const Config& config, int ranks);

// The first number of sets that their members alone have made.
constexpr uint32_t kFirstOwnSet = uint32_t{1} << 31;

// One rank's engine. Thread safe.
class Engine {
 public:
  // Blocks until all ranks have joined. An error leaves nothing behind.
  static Status Make(EngineOptions options, std::unique_ptr<Engine>* engine);

  virtual ~Engine() = default;

  // Starts an operation. Returns at once, with an error when nothing was sent.
  virtual Status Submit(Entry&& entry, HandlePtr* handle) = 0;

  // Blocks until complete, driving the engine on this thread. kTimeout: not complete after
  // timeout_us (< 0: no limit). `interrupted` (may be null) is called now and then while it waits,
  // without locks; true ends the wait with kTimeout.
  virtual Status Wait(const HandlePtr& handle, int64_t timeout_us, bool (*interrupted)()) = 0;

  // Whether it is complete. A program that asks again, and has submitted nothing since it asked
  // last, waits for it: then it is hurried as by Wait.
  virtual bool Poll(const HandlePtr& handle) = 0;

  // Whether such an operation on tensors of GPUs is carried out there; the same on every rank. What
  // is not is to be staged.
  virtual bool ServesGpu(OpKind kind, DataType dtype, ReduceOp op, double prescale,
                         double postscale) const = 0;

  // Fails what is in flight, says goodbye, joins all threads. Idempotent.
  virtual void Shutdown() = 0;

  // Adds a process set of these ranks (ascending), and gives its id. Collective and blocking: every
  // rank of the job calls it with equal members, also those outside, and all get an error if one
  // does.
  virtual Status AddProcessSet(std::vector<int> ranks, uint32_t* id) = 0;

  // The same with the members alone, which call it with the ranks in one order, whichever that is;
  // at most so long after the last of them did. Those that make several sets of equal members make
  // them one after the other, in one order. `interrupted`: as for Wait; true ends it with an error,
  // on the other members too if it can be.
  virtual Status AddOwnProcessSet(std::vector<int> ranks, int64_t timeout_us, bool (*interrupted)(),
                                  uint32_t* id) = 0;

  // Of such a set: this rank submits nothing to it any more, and lets go of it when nothing is in
  // flight on it here. Each member calls it by itself, and waits for nobody.
  virtual Status LeaveProcessSet(uint32_t id) = 0;

  // As AddProcessSet, of one that all ranks have made. An error, on every rank, when some rank has
  // operations in flight on the set.
  virtual Status RemoveProcessSet(uint32_t id) = 0;

  // An error that says why, once the job has failed: for who waits elsewhere than in Wait.
  virtual Status Health() = 0;

  // Those that this rank belongs to, ascending; the first is 0, all ranks.
  virtual std::vector<uint32_t> ProcessSets() const = 0;
  // Global ranks, ascending; empty when there is no such set.
  virtual std::vector<int> MembersOf(uint32_t process_set) const = 0;

  // The public names of this rank's operations in flight on a set, oldest first.
  virtual std::vector<std::string> InFlight(uint32_t process_set) = 0;

  // For the thread of the host language that can see its own stacks: blocks until some rank asks
  // that they be shown; the next call says that they are. False: shut down. `signal`: one at which
  // this process shows them even while that thread cannot run; 0 = none.
  virtual bool AwaitStacksRequest(int signal) = 0;
  // Asks all ranks, this one too.
  virtual void ShowStacks() = 0;

  // Needs HOROVOD_TIMELINE to have been set, else an error: without it nothing is recorded.
  virtual Status StartTimeline(const std::string& path, bool mark_cycles) = 0;
  virtual Status StopTimeline() = 0;

  // For the one thread that makes links on demand. It hands them over, in whatever order; the
  // engine owns the socket from then on. A link that cannot be made is a failure of the job, unless
  // its peer is known to have left. Without one to the launcher (to nobody) this rank ends.
  virtual LinkRequests& link_requests() = 0;
  virtual void AddLink(const Link& link) = 0;
  virtual void GiveUpLink(GlobalRank peer, const std::string& reason) = 0;

  virtual std::map<std::string, uint64_t> CountersNow() const = 0;
  // The descriptors that a forked child must close, so that peers notice when this process dies.
  virtual std::vector<int> Descriptors() const = 0;
};

}  // namespace hvd
