#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/nccl/gpu_driver.h"
#include "backend/nccl/nccl_library.h"
#include "base/collective.h"
#include "base/rank.h"
#include "base/status.h"

namespace hvd::nccl {

struct GpuOptions {
  std::string driver;   // file of the driver
  std::string library;  // file of NCCL
  GlobalRank rank;      // this process
  int local_rank = 0;
  int64_t timeout_us = 0;  // for the members of a set to come together
};

// What those who watch GPUs have found.
struct GpuTrouble {
  bool stalled = false;  // a collective is not done in time; else NCCL or the GPU has failed
  GlobalRank culprit;    // unknown: no single one
  std::string reason;
};

// Who wants to hear of it, on any thread. Neither function waits.
struct GpuListener {
  int64_t warning_us = 0;  // after which a collective that is not done is reported; 0 = never
  int64_t failure_us = 0;  // ... and ends the job; 0 = never
  std::function<void(const std::string& report, bool first)> on_stall;
  std::function<void(GpuTrouble trouble)> on_trouble;
};

// A thread that is in the driver or in NCCL, for a communicator.
class Occupant {
 public:
  virtual ~Occupant() = default;
  // It is to end its communicator at once. Does not wait, needs no memory.
  virtual void WantAbort() noexcept = 0;
};

// Driver and NCCL of this process, and the threads that are in them. Thread safe.
class GpuRuntime {
 public:
  using Clock = std::chrono::steady_clock;
  // How long the end of a communicator may take that waits for what was begun, and of one that does
  // not.
  static constexpr std::chrono::seconds kMostToFinalize{10};
  static constexpr std::chrono::milliseconds kMostToAbort{500};

  explicit GpuRuntime(GpuOptions options) : options_(std::move(options)) {}

  const GpuOptions& options() const { return options_; }

  // Loads both the first time, which takes a while; an error stays.
  Status Load(std::shared_ptr<const GpuDriver>* driver, std::shared_ptr<const NcclLibrary>* nccl);

  // Whether they reduce floats of 8 bits: NCCL does so on GPUs from compute capability 9.0 on.
  // Loads both if need be.
  bool ReducesFloat8();

  void Enter(Occupant* occupant);
  void Leave(const Occupant* occupant) noexcept;
  // The generation is lost. The time when all have left or hang: the same for whoever asks.
  Clock::time_point AbortAll() noexcept;
  // For whoever leaves the process, which may crash when it ends inside the driver: until all have
  // left, at the end by an abort.
  void AwaitAll() noexcept;

  // Replaces the one before, whose functions are not called any more when it returns.
  void Listen(GpuListener listener);
  // With the listener, which does not change meanwhile.
  void Tell(const std::function<void(const GpuListener& listener)>& tell);

 private:
  const GpuOptions options_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable left_;
  std::vector<Occupant*> inside_;
  Clock::time_point abort_ends_{};  // 0: nothing is aborted
  // Guards what follows, also while both are loaded. A driver may take seconds to start; whoever
  // takes the other mutex must not wait for that.
  std::mutex load_mutex_;
  bool loaded_ = false;
  Status status_;
  std::shared_ptr<const GpuDriver> driver_;
  std::shared_ptr<const NcclLibrary> nccl_;
  std::mutex listener_mutex_;  // guards listener_, also while one of its functions runs
  GpuListener listener_;
};

}  // namespace hvd::nccl
