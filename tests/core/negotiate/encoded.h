#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "negotiate/message.h"

namespace hvd::negotiate {

template <typename T>
std::string Encoded(const T& message) {
  std::string bytes;
  Encode(message, &bytes);
  return bytes;
}

// From a copy of just this size on the heap, so that a sanitizer sees a read beyond it.
template <typename T>
Status DecodeExactly(const std::string& bytes, T* message) {
  const std::unique_ptr<char[]> copy(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return Decode(std::string_view(copy.get(), bytes.size()), message);
}

}  // namespace hvd::negotiate
