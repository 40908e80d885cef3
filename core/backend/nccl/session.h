#pragma once

#include <memory>

#include "backend/nccl/communicator.h"
#include "base/collective.h"
#include "base/waker.h"

namespace hvd::nccl {

// A communicator and the thread on which NCCL and the driver may wait for it. The thread sets it
// up, watches it while the GPU has work of it, and ends it. In between whoever holds the progress
// lock uses it. The thread may outlive the session, where a driver hangs.
class Session {
 public:
  // Starts to prepare it, and on the first rank to make its id.
  static Status Begin(std::shared_ptr<GpuRuntime> runtime, uint32_t set, int size, int position,
                      int32_t device, const Waker& waker, std::unique_ptr<Session>* session);
  // Ends it when all that was begun is done, without waiting for that.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // kDone: it is prepared, or connected, whichever was begun last. Never kFailed while it is being
  // prepared: the other ranks have to hear of that first.
  Step Look() const;
  // Why preparing or connecting failed.
  Status status() const;

  // Once it is prepared: of NCCL (0: that cannot be loaded), and on the first rank the id.
  int version() const;
  UniqueId id() const;
  void BeginToConnect(const UniqueId& id);

  // Once it is connected.
  Communicator& communicator() const;

  // Ends it at once, and with it all others of the runtime. Returns when the GPU touches nothing
  // more, or half a second after the first such call: then the driver hangs, or the GPU is at work
  // for the program. Needs no memory; more than one call does no harm.
  void Abort() noexcept;

 private:
  struct Shared;

  explicit Session(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  static void Run(Shared* shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::nccl
