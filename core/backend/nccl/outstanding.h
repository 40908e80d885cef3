#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/nccl/gpu_event.h"
#include "base/status.h"

namespace hvd::nccl {

// The collectives that a GPU was given and has perhaps not finished, the oldest first. Not thread
// safe.
class Outstanding {
 public:
  struct Given {
    std::string title;
    int64_t since_us = 0;
    std::shared_ptr<GpuEvent> start;  // the GPU has come to it
    std::shared_ptr<GpuEvent> end;    // it is done, with all its copies
    bool complete = false;            // the stream has all of it
    bool reached = false;             // as far as the last Look knows
  };

  // Of the GPU `device`, whose context is `context`.
  Outstanding(std::shared_ptr<const GpuDriver> driver, int32_t device, void* context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  // Has `wake` called when a collective is given and nobody watches. From then on somebody does,
  // until a Look finds nothing.
  void WatchBy(std::function<void()> wake) { wake_ = std::move(wake); }

  // Around what a collective gives to the stream. *end is what whoever uses its tensors waits for.
  Status Begin(void* stream, std::string title, int64_t now_us);
  Status End(void* stream, std::shared_ptr<const DeviceEnd>* end);

  // Forgets what is done. An error: the GPU can be used no more.
  Status Look();
  // Null: nothing is outstanding, and nobody watches.
  const Given* oldest() const { return given_.empty() ? nullptr : &given_.front(); }

  // All of them are about to be aborted.
  void Lose() noexcept;

 private:
  Status ForgetDone();

  const std::shared_ptr<const GpuDriver> driver_;
  const int32_t device_;
  void* const context_;
  std::function<void()> wake_;
  bool watched_ = false;
  std::deque<Given> given_;
};

}  // namespace hvd::nccl
