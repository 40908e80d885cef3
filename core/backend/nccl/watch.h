#pragma once

#include <cstdint>
#include <string>

#include "backend/nccl/communicator.h"
#include "backend/nccl/gpu_runtime.h"

namespace hvd::nccl {

// Looks at a connected communicator while its GPU has work, of which the host hears nothing more:
// NCCL's network or the GPU may fail, or the work may never be done, and whoever waits for the GPU
// would wait for ever.
class Watch {
 public:
  // How often to look.
  static constexpr std::chrono::milliseconds kPeriod{100};

  Watch(GpuRuntime* runtime, Communicator* communicator)
      : runtime_(runtime), communicator_(communicator) {}

  // Tells the runtime's listener what it finds. False: the GPU has no work left.
  bool Look(int64_t now_us);

 private:
  Status Inspect();
  void Failed(const Status& why, int64_t now_us);
  void Judge(const GpuListener& listener, int64_t now_us);
  void Warn(const GpuListener& listener, int64_t now_us);
  std::string Report(int64_t now_us) const;

  GpuRuntime* const runtime_;
  Communicator* const communicator_;
  int64_t failed_us_ = -1;
  bool told_ = false;  // of a failure: the first one counts
  // Of the oldest collective that the GPU has not finished.
  std::string title_;
  int64_t since_us_ = -1;  // -1: there is none
  bool complete_ = false;
  bool reached_ = false;
  int64_t next_warning_us_ = 0;
  int warnings_ = 0;  // since something stalls
};

}  // namespace hvd::nccl
