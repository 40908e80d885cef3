#pragma once

#include <memory>

#include "base/collective.h"

namespace hvd {

struct BackendTraits {
  bool any_thread;   // Start and Advance may be called from whichever thread drives the engine
  bool interleaves;  // several started machines may be advanced in any order
  bool gpu_async;    // kDone means enqueued on the device, not complete
};

// Runs whole collectives on one device's memory for one process set. Every member calls Start with
// equal specs (but for its own pieces' pointers) in the same order.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendTraits traits() const = 0;
  // Never waits and never fails: what cannot be done is a machine whose first step says so.
  virtual std::unique_ptr<StepMachine> Start(CollectiveSpec spec) = 0;
  // What the machines run on can be relied on no more, though none of them has failed: they would wait for
  // ever.
  virtual bool broken() const { return false; }
};

}  // namespace hvd
