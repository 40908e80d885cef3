#pragma once

#include <cstdint>

namespace hvd {

// While one exists, its thread computes as every thread of every rank does here: rounding to
// nearest, with denormal numbers, without traps. A program may have its own threads flush denormals
// (torch.set_flush_denormal), and its threads drive as the background thread does: which of them
// reduces a slice must not show in the result. One file per processor family defines it.
class FloatMode {
 public:
  FloatMode() noexcept;
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace hvd
