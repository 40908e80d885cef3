#pragma once

#include "base/status.h"

namespace hvd {

enum class Step : uint8_t { kProgressed, kBlocked, kDone, kFailed };

// A collective in progress. The engine interleaves all started machines on one thread, so a step
// does a bounded piece of work (at most kStepBytes of memory traffic) and never waits: a machine
// that waited could deadlock two overlapping process sets.
class StepMachine {
 public:
  virtual ~StepMachine() = default;
  virtual Step Advance() = 0;
  // Why Advance() returned kFailed.
  virtual Status status() const { return Status::Ok(); }
};

constexpr size_t kStepBytes = 256 << 10;

}  // namespace hvd
