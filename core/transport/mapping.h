#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace hvd {

// Owns one mapped range of pages.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  static Status Anonymous(size_t bytes, Mapping* out);  // all pages present
  static Status Shared(int fd, size_t bytes, Mapping* out);

  // Makes pages that exist present here, so that there is no page fault on the hot path.
  void Touch() const;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static Status Map(int flags, int fd, size_t bytes, Mapping* out);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

constexpr size_t kPageBytes = 4096;

// `bytes` rounded up to whole pages, at least one.
constexpr size_t WholePages(size_t bytes) {
  return bytes == 0 ? kPageBytes : (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace hvd
