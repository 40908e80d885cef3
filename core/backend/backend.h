#pragma once

#include <memory>

#include "base/collective.h"
#include "base/waker.h"

namespace hvd {

// Runs whole collectives on one kind of device's memory, or with one library, for one process set.
// All calls come from whoever holds the progress lock.
class Backend {
 public:
  virtual ~Backend() = default;

  // Whether it runs such a collective. Equal on every member, so it looks at nothing that is one
  // member's own: of a GPU only that it is one may matter, and of the pieces nothing.
  virtual bool Serves(const CollectiveSpec& spec) const = 0;

  // Whether it can be given such a collective, which it serves, with everybody's input; likewise.
  virtual bool TakesGathered(const CollectiveSpec& /*spec*/) const { return false; }
  // Carries out such a collective, with everybody's input (CollectiveSpec::gathered), at once: it
  // is small, and nobody is waited for.
  virtual void Combine(const CollectiveSpec& /*spec*/) {}

  // What the members make together before the first collective, such as a communicator, as a
  // machine, so that it holds up no other set; null when there is nothing to make. Called once,
  // before the collective `first` is started, which is the same one on every member. From here on
  // the backend rings `waker` when one of its machines that is blocked may go on for a reason that
  // no transport and no flag of a window tells.
  virtual std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& first, const Waker& waker) = 0;

  // Every member calls it with equal specs (but for its own pieces, device and order) in the same
  // order; a set's next one comes when the one before is done. Never waits and never fails: what
  // cannot be done is a machine whose first step says so.
  virtual std::unique_ptr<StepMachine> Start(CollectiveSpec spec) = 0;

  // Memory of the device for a result whose size only negotiation tells, for the collective that is
  // started next; freed in the order of the stream in `order`. Of a backend of a device: results on
  // the host are the engine's.
  virtual Status Allocate(const DeviceOrder& /*order*/, int64_t /*bytes*/,
                          std::shared_ptr<std::byte>* /*memory*/) {
    return Status::Internal("a backend of the host allocates no results");
  }

  // The generation is lost: ends what is under way, so that the machines can be destroyed and no
  // memory of the user's is touched afterwards. Nothing is started any more. Needs no memory.
  // Perhaps more than once, and perhaps of a backend that was never set up.
  virtual void Abort() noexcept = 0;

  // What the machines run on can be relied on no more, though none of them has failed: they would
  // wait for ever.
  virtual bool broken() const { return false; }
};

}  // namespace hvd
