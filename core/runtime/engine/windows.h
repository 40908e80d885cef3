#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/rank.h"
#include "base/topology.h"
#include "base/waker.h"
#include "runtime/engine/engine.h"
#include "transport/window.h"

namespace hvd {

// How many bytes each member gives to a window, and how many of these, from the first on, must be
// there from the beginning.
struct WindowBytes {
  size_t all;
  size_t at_once;
};

// Where windows come from.
class WindowSource {
 public:
  virtual ~WindowSource() = default;
  // As Wirer::Prepare; *window stays null on a rank that is no member.
  virtual Status Make(uint32_t id, const Members& members, WindowBytes bytes, int64_t deadline_us,
                      std::unique_ptr<Window>* window) = 0;
  // As Wirer::Reserve and Wirer::PrepareIn.
  virtual Status Reserve(uint32_t id, const Members& members, WindowBytes bytes,
                         std::string* place) = 0;
  virtual Status Open(uint32_t id, const Members& members, WindowBytes bytes,
                      const std::string& place, std::unique_ptr<Window>* window) = 0;
  // As Wirer::Close and Wirer::Reclaim.
  virtual void Close(const std::string& /*place*/) {}
  virtual void Reclaim() {}
  virtual void Interrupt() {}
  virtual GlobalRank failed_rank() const { return {}; }
};

// Among processes: takes its links out of the options.
std::unique_ptr<WindowSource> MakeSharedWindows(EngineOptions* options, const Topology& job,
                                                const Waker& waker);
// Among the threads of a test.
std::unique_ptr<WindowSource> MakeFabricWindows(const EngineOptions& options, const Waker& waker);

}  // namespace hvd
