#include "base/float_mode.h"

namespace hvd {

namespace {

constexpr uint64_t kUsual = 0;

uint64_t Read() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}

// To write the register costs more than to read it.
void Write(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

}  // namespace

FloatMode::FloatMode() noexcept : before_(Read()) {
  if (before_ != kUsual) Write(kUsual);
}

FloatMode::~FloatMode() {
  if (before_ != kUsual) Write(before_);
}

}  // namespace hvd
