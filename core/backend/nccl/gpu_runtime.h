#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend/nccl/gpu_driver.h"
#include "backend/nccl/nccl_library.h"
#include "base/status.h"

namespace hvd::nccl {

struct GpuOptions {
  std::string driver;   // file of the driver
  std::string library;  // file of NCCL
  int local_rank = 0;
  int64_t timeout_us = 0;  // for the members of a set to come together
};

// Driver and NCCL of this process, and the threads that are in them. Thread safe.
class GpuRuntime {
 public:
  explicit GpuRuntime(GpuOptions options) : options_(std::move(options)) {}

  const GpuOptions& options() const { return options_; }

  // Loads both the first time, which takes a while; an error stays.
  Status Load(std::shared_ptr<const GpuDriver>* driver, std::shared_ptr<const NcclLibrary>* nccl);

  // Whether they reduce floats of 8 bits: NCCL does so on GPUs from compute capability 9.0 on.
  // Loads both if need be.
  bool ReducesFloat8();

  // Of threads that end communicators: whoever leaves the process waits for them, for a while.
  void Enter();
  void Leave() noexcept;
  void AwaitAll(int64_t limit_us);

 private:
  const GpuOptions options_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable left_;
  int inside_ = 0;
  bool loaded_ = false;
  Status status_;
  std::shared_ptr<const GpuDriver> driver_;
  std::shared_ptr<const NcclLibrary> nccl_;
};

}  // namespace hvd::nccl
