#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/topology.h"
#include "collective/communicator.h"
#include "collective/window/board.h"

namespace hvd {

// Collectives on host memory, over shared memory or over links, of every kind; of a tensor on a GPU
// on the copy that the adapter hands in.
class HostBackend : public Backend {
 public:
  bool Serves(const CollectiveSpec& spec) const final {
    return KindOf(spec.device) != DeviceKind::kGpu;
  }
  bool TakesGathered(const CollectiveSpec& spec) const final {
    return spec.kind == OpKind::kAllreduce && spec.reduction.op != ReduceOp::kAdasum;
  }
  // Window and links are there before the set is; flags and sockets wake by themselves.
  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& /*first*/,
                                     const Waker& /*waker*/) final {
    return nullptr;
  }
  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) final;
  // Its machines touch memory only when they are advanced; links are closed by whoever owns them.
  void Abort() noexcept final {}

 protected:
  HostBackend(int rank, int size, std::shared_ptr<ScratchPool> scratch)
      : rank_(rank), size_(size), scratch_(std::move(scratch)) {}

 private:
  virtual std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) = 0;
  virtual Status Prepare() { return Status::Ok(); }  // before each of them
  Status Check(const CollectiveSpec& spec) const;
  bool SizesFit(const CollectiveSpec& spec, size_t piece) const;

  const int rank_;  // position in the set
  const int size_;
  const std::shared_ptr<ScratchPool> scratch_;
};

// All members share the window, of which each allocates so many bytes. `window` outlives the
// backend; no machine outlives either.
inline size_t WindowBackendBytes(const BoardShape& shape) { return Board::Bytes(shape); }
Status MakeWindowBackend(Window* window, const BoardShape& shape,
                         std::unique_ptr<Backend>* backend);

// `position` is this rank's own. `transport` outlives the backend; it is closed before an
// unfinished machine is destroyed.
std::unique_ptr<Backend> MakeTransportBackend(Transport* transport, uint32_t set, Members members,
                                              Position position);

// Members on several hosts: `window` is that of those on this host, alone or not; `transport` leads
// to all. `topology` is the set's.
Status MakeHierarchicalBackend(Window* window, const BoardShape& shape, Transport* transport,
                               uint32_t set, Members members, Position position, Topology topology,
                               std::unique_ptr<Backend>* backend);

}  // namespace hvd
