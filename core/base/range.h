#pragma once

#include <algorithm>
#include <cstdint>

namespace hvd {

// [begin, end), of bytes or elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end - begin; }
};

// Of `parts` that are as even as possible, the first ones being one longer: that of this number,
// from 0 on.
inline Range EvenPart(int64_t whole, int64_t number, int64_t parts) {
  const auto begin = [&](int64_t part) {
    return whole / parts * part + std::min(part, whole % parts);
  };
  return {begin(number), begin(number + 1)};
}

constexpr int64_t RoundUp(int64_t amount, int64_t unit) {
  return (amount + unit - 1) / unit * unit;
}

}  // namespace hvd
