#include "collective/reducer.h"

#include "collective/kernels/kernels.h"

namespace hvd {

Reducer::Reducer(const Reduction& reduction, int operands)
    : reduction_(reduction),
      element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
      operands_(static_cast<size_t>(operands)),
      addresses_(2 * operands_),
      begins_(addresses_.data() + operands_) {}

void Reducer::IntoOutputs(const PieceStream& stream, int64_t begin, int64_t end, std::byte* copy) {
  stream.ForEach(begin, end,
                 [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
                   Run(input, at, output, copy == nullptr ? nullptr : copy + at, bytes);
                 });
}

void Reducer::IntoMemory(const PieceStream& stream, int64_t begin, int64_t end, std::byte* to) {
  stream.ForEach(begin, end, [&](const std::byte* input, std::byte*, int64_t at, int64_t bytes) {
    Run(input, at, to + at, nullptr, bytes);
  });
}

void Reducer::IntoMemory(std::byte* to, int64_t bytes) { Run(nullptr, 0, to, nullptr, bytes); }

void Reducer::Run(const std::byte* input, int64_t at, std::byte* to, std::byte* copy,
                  int64_t bytes) {
  for (size_t i = 0; i < operands_; ++i) {
    const auto* begin = static_cast<const std::byte*>(begins_[i]);
    addresses_[i] = begin == nullptr ? input : begin + at;
  }
  void* const destinations[] = {copy == nullptr ? to : copy, to};
  kernels::Reduce(reduction_, addresses_.data(), static_cast<int>(operands_), destinations,
                  copy == nullptr ? 1 : 2, bytes / element_);
}

}  // namespace hvd
