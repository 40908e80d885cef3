#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backend/nccl/gpu_driver.h"
#include "base/status.h"

namespace hvd::nccl {

// The collectives that a GPU was given and has perhaps not finished, the oldest first. Of the
// context of the GPU, which is current in every call; not thread safe.
class Outstanding {
 public:
  struct Given {
    std::string title;
    int64_t since_us = 0;
    void* start = nullptr;  // event: the GPU has come to it
    void* end = nullptr;    // event: it is done, with all its copies
    bool complete = false;  // the stream has all of it
    bool reached = false;   // as far as the last Look knows
  };

  explicit Outstanding(const GpuDriver& driver) : driver_(driver) {}

  // Has `wake` called when a collective is given and nobody watches. From then on somebody does,
  // until a Look finds nothing.
  void WatchBy(std::function<void()> wake) { wake_ = std::move(wake); }

  // Around what a collective gives to the stream. *end is what its tensors' streams wait for.
  Status Begin(void* stream, std::string title, int64_t now_us);
  Status End(void* stream, void** end);

  // Forgets what is done. An error: the GPU can be used no more.
  Status Look();
  // Null: nothing is outstanding, and nobody watches.
  const Given* oldest() const { return given_.empty() ? nullptr : &given_.front(); }

  void Free();

 private:
  Status ForgetDone();

  const GpuDriver& driver_;
  std::function<void()> wake_;
  bool watched_ = false;
  std::deque<Given> given_;
  std::vector<Given> spare_;  // events to use again
};

}  // namespace hvd::nccl
