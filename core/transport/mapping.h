#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "base/status.h"

namespace hvd {

// Of this machine: 4 KiB, or 16 or 64 where the kernel is built so. One number for all ranks of a
// host.
inline size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// `bytes` rounded up to whole pages, at least one.
inline size_t WholePages(size_t bytes) {
  const size_t page = PageBytes();
  return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

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
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  static Status Anonymous(size_t bytes, Mapping* out) {  // all pages present
    return Map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, bytes, out);
  }
  // `offset` in the file: of a page.
  static Status Shared(int fd, size_t bytes, Mapping* out, size_t offset = 0) {
    return Map(MAP_SHARED, fd, bytes, out, offset);
  }

  // Makes pages that exist present here, so that there is no page fault on the hot path. Reads,
  // because for a read the kernel brings in what lies around it too, writable where the mapping is.
  void Touch() const {
    const size_t page = PageBytes();
    for (size_t at = 0; at < bytes_; at += page) {
      [[maybe_unused]] const std::byte byte = static_cast<const volatile std::byte*>(data_)[at];
    }
  }

  // Makes pages present here for which nothing was reserved; an error where there is no memory.
  // Older kernels than 5.14 do that on first use, and end the process instead.
  static Status Populate(std::byte* pages, size_t bytes) {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
    if (madvise(pages, bytes, kPopulateWrite) == 0 || errno == EINVAL) return Status::Ok();
    return Status::Errno("cannot get " + std::to_string(bytes) + " bytes of shared memory");
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static Status Map(int flags, int fd, size_t bytes, Mapping* out, size_t offset = 0) {
    const auto from = static_cast<off_t>(offset);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, from);
    if (data == MAP_FAILED) return Status::Errno("cannot map " + std::to_string(bytes) + " bytes");
    Mapping mapping;
    mapping.data_ = static_cast<std::byte*>(data);
    mapping.bytes_ = bytes;
    *out = std::move(mapping);
    return Status::Ok();
  }

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hvd
