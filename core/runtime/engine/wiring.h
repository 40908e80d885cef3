#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/library/library.h"
#include "backend/nccl/gpu_runtime.h"
#include "base/rank.h"
#include "base/topology.h"
#include "base/waker.h"
#include "collective/window/board.h"
#include "runtime/engine/cores.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/link_requests.h"
#include "runtime/engine/windows.h"
#include "runtime/liveness/cause.h"
#include "runtime/peer/messages.h"
#include "runtime/progress/process_set.h"
#include "transport/descriptor.h"
#include "transport/link_signs.h"
#include "transport/tcp/transport.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

// Turns links (or a test's fabric) into what process sets talk and compute over. Takes the links
// that it needs out of the options of its making.
class Wirer {
 public:
  // `requests`: where transports ask for the links that they lack, if they may. `signs`: where
  // their sockets are watched. Both outlive them.
  static Status Make(EngineOptions* options, const Waker& waker, LinkRequests* requests,
                     LinkSigns* signs, std::unique_ptr<Wirer>* wirer);
  // Waits, for a while, for what still ends communicators of its sets.
  ~Wirer();

  // Collective and blocking: every rank calls it for the same sets in the same order, the one of
  // all ranks first, also for sets that it does not belong to. Callable without the progress lock.
  // Gives up at `deadline_us`, on the clock of NowMicros.
  Status Prepare(uint32_t id, const Members& members, int64_t deadline_us, ProcessSetWires* wires);

  // The same for a set that its members make by themselves: the first one on each host reserves
  // what the set has there, and tells the others where; then each prepares it (kTimeout: its place
  // was closed). Nothing waits, and nobody may use the set before all have. Thread safe.
  Status Reserve(uint32_t id, const Members& members, std::string* place);
  Status PrepareIn(uint32_t id, const Members& members, const std::string& place,
                   ProcessSetWires* wires);
  // Of a place that this rank has reserved: who has not prepared the set there cannot any more.
  void Close(const std::string& place);
  // Frees places that all members have left, some at a time.
  void Reclaim();
  // Of these members, those who share memory with this rank and itself, ascending.
  Members Companions(const Members& members) const;
  // Those of them who reserve.
  std::vector<GlobalRank> FirstsOf(const Members& members) const;

  // Ends a Prepare that waits for a member that will not come. From any thread; for good.
  void Interrupt() {
    if (windows_ != nullptr) windows_->Interrupt();
  }

  // Who hears of trouble with GPUs; see GpuRuntime::Listen.
  void Listen(nccl::GpuListener listener) {
    if (gpu_ != nullptr) gpu_->Listen(std::move(listener));
  }

  // The part of it that touches transports in use: with the progress lock, or before there is one.
  void Finish(uint32_t id, const Members& members, ProcessSetWires* wires);

  // What messages between ranks travel over. Collective and blocking: every rank calls it once,
  // after the first sets were made.
  Status MakeChannels(int64_t deadline_us, peer::Channels* channels);

  // A link that was made on demand; with the progress lock, while there are transports.
  Status AddLink(const Link& link, Descriptor socket);

  // For whoever drives them. Called once.
  std::vector<std::unique_ptr<Transport>> TakeTransports() { return std::move(transports_); }

  // Where the ranks of the job run.
  const Topology& job() const { return job_; }

  // The rank for which the last Prepare failed; unknown: none, or nobody knows.
  GlobalRank failed_rank() const {
    return windows_ == nullptr ? GlobalRank() : windows_->failed_rank();
  }

  // That a rank is lost, if that is the cause of this generation's end.
  void Lose(const Cause& cause) noexcept;

  // What reduces on GPUs; null: they have no library in this job.
  nccl::GpuRuntime* gpu() const { return gpu_.get(); }

  // The cores that the ranks of this host may use; after MakeChannels, in which they have all met.
  int cores() const { return cores_.Count(); }

 private:
  explicit Wirer(const EngineOptions& options);
  Status MakeTransports(EngineOptions* options, const Waker& waker, LinkRequests* requests,
                        LinkSigns* signs);
  Status MakeTcp(EngineOptions* options, LinkRole role, LinkRequests* requests, LinkSigns* signs,
                 std::unique_ptr<Transport>* transport);
  Status Furnish(uint32_t id, const Members& members, ProcessSetWires* wires);
  void UseLibrary(uint32_t id, const Members& members, ProcessSetWires* wires);
  void UseGpu(uint32_t id, const Members& members, ProcessSetWires* wires);

  const GlobalRank rank_;
  const Topology job_;
  const BoardShape board_;
  // Over shared memory the one, over links the others.
  std::unique_ptr<WindowSource> windows_;
  std::vector<std::unique_ptr<Transport>> transports_;
  Transport* control_ = nullptr;
  Transport* data_ = nullptr;
  std::map<LinkRole, tcp::TcpTransport*> over_sockets_;  // the same two, where they are that
  std::unique_ptr<Library> library_;                     // null: none is used
  std::shared_ptr<nccl::GpuRuntime> gpu_;                // null: tensors of GPUs are staged
  HostCores cores_;
};

}  // namespace hvd
