#pragma once

#include <memory>
#include <vector>

#include "base/rank.h"
#include "base/topology.h"
#include "base/waker.h"
#include "runtime/engine/engine.h"
#include "runtime/progress/process_set.h"
#include "transport/shm/share_tree.h"
#include "transport/transport.h"

namespace hvd {

// Turns links (or a test's fabric) into what process sets talk and compute over. Takes the links that it
// needs out of the options of its making.
class Wirer {
 public:
  static Status Make(EngineOptions* options, const Waker& waker, std::unique_ptr<Wirer>* wirer);

  ~Wirer();

  // Collective and blocking: every rank calls it for the same sets in the same order, the one of all ranks
  // first, also for sets that it does not belong to. Callable without the progress lock. Gives up at
  // `deadline_us`, on the clock of NowMicros.
  Status Prepare(uint32_t id, const Members& members, int64_t deadline_us, ProcessSetWires* wires);

  // Ends a Prepare that waits for a member that will not come. From any thread; for good.
  void Interrupt();

  // The part of it that touches transports in use: with the progress lock, or before there is one.
  void Finish(uint32_t id, const Members& members, ProcessSetWires* wires);

  // For whoever drives them. Called once.
  std::vector<std::unique_ptr<Transport>> TakeTransports() { return std::move(transports_); }

  // Where the ranks of the job run.
  const Topology& job() const { return job_; }

  // The rank for which the last Prepare failed; unknown: none, or nobody knows.
  GlobalRank failed_rank() const { return tree_ == nullptr ? GlobalRank() : tree_->failed_rank(); }

  // The cores that the ranks of this host may use.
  int cores() const { return cores_; }

 private:
  Wirer(const EngineOptions& options, const Waker& waker);
  Status MakeTransports(EngineOptions* options);
  Status MakeTcp(EngineOptions* options, LinkRole role);
  Status MakeWindow(uint32_t id, const Members& members, int64_t deadline_us,
                    std::unique_ptr<Window>* window);
  Status PlantTree(int64_t deadline_us);

  const Wiring wiring_;
  const Topology job_;
  const uint64_t generation_;
  const GlobalRank rank_;
  const int size_;
  inproc::Fabric* const fabric_;
  const Waker& waker_;
  std::vector<Link> share_;  // owned; for as long as sets may be added
  std::unique_ptr<shm::ShareTree> tree_;
  std::vector<std::unique_ptr<Transport>> transports_;
  Transport* control_ = nullptr;
  Transport* data_ = nullptr;
  int cores_;
};

}  // namespace hvd
