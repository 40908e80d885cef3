#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

// Where the engine reports the phases of a tensor's life. One interface, so that the layers below the
// timeline need not know it and a job without a timeline pays one null check.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Phases of one tensor nest: Begin(tensor, "NEGOTIATE_ALLREDUCE") ... End(tensor).
  virtual void Begin(std::string_view tensor, std::string_view phase) = 0;
  virtual void End(std::string_view tensor) = 0;
  // A batch is carried out from here on.
  virtual void MarkCycle() = 0;
};

}  // namespace hvd
